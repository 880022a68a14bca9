"""Runs and sweeps that are told to stop, killed, or share their work with other processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mixbench import torture
from mixbench.records import RunFolder
from tests.conftest import TINY, run_command
from tests.test_experiment import comparable

# Of a grid at a time; `PROCESSES=4 RUNS=40` in the environment is what was shown.
PROCESSES, RUNS = int(os.environ.get("PROCESSES", 2)), int(os.environ.get("RUNS", 12))
# Long enough to be met while it trains: 480 steps.
LONG = ("mixer=attention", *TINY[1:], "epochs=120", "checkpoint_seconds=1000")


def start(folder: Path, *arguments: str, start_new_session: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mixbench.cli", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=start_new_session,
    )


def wait_for(pattern: str, folder: Path, number: int = 1) -> list[Path]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = sorted(folder.glob(pattern))
        if len(found) >= number:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"no {pattern} in {folder}")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_a_run_save_and_says_how_to_go_on(tmp_path, signum):
    process = start(tmp_path, *LONG)
    wait_for("outputs/runs/*/history.csv", tmp_path)
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    assert err.startswith("mixbench: interrupted; the same command goes on from there: mixbench ")
    (folder,) = (tmp_path / "outputs" / "runs").iterdir()
    assert not (folder / "result.json").exists()
    assert (folder / "checkpoint.pt").exists()
    log = (folder / "run.log").read_text()
    step = int(log.partition("interrupted at step ")[2].partition(":")[0])
    assert step > 0
    again = start(tmp_path, *LONG)
    again.communicate(timeout=120)
    assert again.returncode == 0
    assert f"(step {step})" in (folder / "run.log").read_text()


def test_a_grid_stops_in_order_and_goes_on(tmp_path):
    process = start(tmp_path, "-m", *LONG, "seed=1,2,3")
    wait_for("outputs/runs/*/history.csv", tmp_path)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    folders = list((tmp_path / "outputs" / "runs").iterdir())
    assert len(folders) == 1
    assert (folders[0] / "checkpoint.pt").exists()


def test_ctrl_c_lets_every_worker_save(tmp_path):
    """A terminal sends it to the sweeper and to all workers of its pool."""
    pool = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    process = start(tmp_path, "-m", *LONG, "epochs=2000", "seed=1,2", *pool, start_new_session=True)
    wait_for("outputs/runs/*/history.csv", tmp_path, 2)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    logs = [path.read_text() for path in tmp_path.glob("outputs/runs/*/run.log")]
    assert [log.count("interrupted at step ") for log in logs] == [1, 1]


def test_a_worker_whose_sweep_is_gone_stops(monkeypatch):
    from mixbench import interruption
    from mixbench.interruption import Interrupted, Watch

    followed = []
    monkeypatch.setattr(interruption, "_leave_with", followed.append)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    import socket

    monkeypatch.setenv("MIXBENCH_SWEEPER", f"{socket.gethostname()} {gone.pid}")
    with pytest.raises(Interrupted):
        Watch(None).check()
    assert followed == [gone.pid]
    monkeypatch.setenv("MIXBENCH_SWEEPER", f"elsewhere {gone.pid}")
    Watch(None).check()
    assert followed == [gone.pid]


def test_a_worker_ends_after_its_sweeper_and_the_run_in_it(tmp_path):
    """A pool's worker would wait for its next task for ever."""
    code = (
        "import os, socket, subprocess, sys, time\n"
        "from mixbench.interruption import Watch, stopped_in_order\n"
        "gone = subprocess.Popen([sys.executable, '-c', ''])\n"
        "gone.wait()\n"
        "os.environ['MIXBENCH_SWEEPER'] = f'{socket.gethostname()} {gone.pid}'\n"
        "with stopped_in_order():\n"
        "    Watch(None)\n"
        "    time.sleep(2)\n"
        "    print('the run is over', flush=True)\n"
        "time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 143
    assert done.stdout == "the run is over\n"


def test_on_error_stop_ends_a_sweep_at_the_first_failure(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    arguments = ("-m", *TINY, "schedule=constant", "lr=1e15,1e-3,1e-4")
    assert run_command(*arguments, "on_error=stop") == 1
    done = [path.parent.name for path in tmp_path.glob("outputs/runs/*/result.json")]
    assert len(done) == 1
    assert "on_error=stop" in capfd.readouterr().err
    assert run_command(*arguments) == 1
    assert len(list(tmp_path.glob("outputs/runs/*/result.json"))) == 3


def test_overflowing_settings_neither_hang_nor_crash_a_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_command("-m", *TINY, "mixer=attention,lattice,gdn", "lr=1e6") in (0, 1)
    assert run_command("-m", *TINY, "mixer=laplacian", "mixer.sigma=1e-30,1e30") in (0, 1)
    assert run_command("-m", *TINY, "mixer=lattice", "mixer.addr_scale=1e9") in (0, 1)
    results = [json.loads(path.read_text()) for path in tmp_path.glob("outputs/runs/*/result.json")]
    assert len(results) == 6
    for result in results:
        assert result["status"] in ("completed", "diverged")
        assert (result["status"] == "diverged") == (result["reason"] is not None)


def test_processes_share_a_grid(tmp_path):
    """No run is done twice, none is lost, and every process ends with the whole grid."""
    seeds = ",".join(map(str, range(RUNS)))
    grid = ("-m", "mixer=attention", *TINY[1:], "epochs=2", f"seed={seeds}")
    processes = [start(tmp_path, *grid) for _ in range(PROCESSES)]
    outputs = [process.communicate(timeout=150) for process in processes]
    assert [process.returncode for process in processes] == [0] * PROCESSES, outputs
    logs = list(tmp_path.glob("outputs/runs/*/run.log"))
    assert len(logs) == RUNS
    for log in logs:
        assert log.read_text().count(" completed, record in ") == 1
        assert RunFolder.at(log.parent).sound_result() is not None
    sweeps = [json.loads(path.read_text()) for path in tmp_path.glob("outputs/sweeps/*/sweep.json")]
    assert len(sweeps) == PROCESSES
    assert all(len(sweep["runs"]) == RUNS for sweep in sweeps)
    shares = [output.count("  mqar-attention-seed") for output, _ in outputs]
    assert all(shares)


def test_a_killed_run_finds_what_it_would_have_found(tmp_path):
    """The short form of `make torture`: one run, killed twice."""
    arguments = ("mixer=gdn", *TINY[1:], "epochs=60", "checkpoint_seconds=0.05")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir(), killed.mkdir()
    start(whole, *arguments).communicate(timeout=60)
    seen = 0
    for _ in range(2):
        process = start(killed, *arguments)
        wait_for("outputs/runs/*/checkpoint.pt", killed)
        (path,) = killed.glob("outputs/runs/*/checkpoint.pt")
        deadline = time.monotonic() + 60
        while path.stat().st_mtime_ns == seen and time.monotonic() < deadline:
            time.sleep(0.005)
        process.kill()
        process.communicate()
        seen = path.stat().st_mtime_ns
    assert not list(killed.glob("outputs/runs/*/result.json"))
    start(killed, *arguments).communicate(timeout=60)
    results = [
        json.loads(next(folder.glob("outputs/runs/*/result.json")).read_text())
        for folder in (whole, killed)
    ]
    assert comparable(results[0]) == comparable(results[1])


def test_the_torture_sees_what_is_lost_doubled_or_changed(tmp_path, monkeypatch):
    for name in ("whole", "other"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert run_command("-m", *TINY, "seed=1,2") == 0
        (folder / "outputs" / "sweeps" / "x").mkdir()
        (folder / "outputs" / "sweeps" / "x" / "report.json").write_text('{"a": [{"d": 1}]}')
    whole, other = (tmp_path / name / "outputs" for name in ("whole", "other"))
    expected = torture.report_of(whole)
    assert torture.differences(other, whole, expected) == []
    (other / "sweeps" / "x" / "report.json").write_text('{"a": [{"d": 2}]}')
    first, second = torture.records_of(other)
    first.history.write_text("epoch\n")
    (second.path / ".result.json.77").write_text("")
    result = json.loads(second.result.read_text())
    result["metrics"]["valid/accuracy"] += 0.5
    second.result.write_text(json.dumps(result))
    found = torture.differences(other, whole, expected)
    assert sorted(text.partition(":")[0] for text in found) == [
        f"left over in {second.path.name}", "metrics differs", "no sound result",
        "the report differs",
    ]  # fmt: skip
