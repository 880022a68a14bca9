"""Runs and sweeps that are told to stop, killed, or share their work with other processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mixbench.core import interruption
from mixbench.core.errors import RunsFailed
from mixbench.core.interruption import (
    Interrupted,
    StopSignalPoller,
    is_sweeper,
    stop_sweep,
    sweeping,
)
from mixbench.records.folder import RunFolder
from tests.conftest import TINY, run_command
from tests.runs.test_run import comparable
from tests.stress import torture

# Of a grid at a time; `PROCESSES=4 RUNS=40` in the environment is what was shown.
PROCESSES, RUNS = int(os.environ.get("PROCESSES", 2)), int(os.environ.get("RUNS", 12))
# Long enough to be met while it trains: 480 steps.
LONG = ("mixer=attention", *TINY[1:], "epochs=120", "checkpoint_seconds=1000")


def start(folder: Path, *arguments: str, start_new_session: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mixbench", *arguments],
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
    assert err.startswith("mixbench: interrupted; run the same command to resume: mixbench ")
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


def sweeper_file(folder: Path, pid: int, place: str | None = None, age: float = 0) -> Path:
    """What a sweep writes for its workers, as if a process `pid` ran it."""
    path = folder / ".sweeper"
    path.write_text(f"{place or interruption._host_id()} {pid}\n")
    os.utime(path, (time.time() - age,) * 2)
    return path


@pytest.fixture
def gone():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_worker_whose_sweep_is_gone_stops(tmp_path, monkeypatch, gone):
    followed = []
    monkeypatch.setattr(interruption, "_exit_when_parent_dies", followed.append)
    sweeper_file(tmp_path, gone)
    with pytest.raises(Interrupted, match="gone"):
        StopSignalPoller(tmp_path).check()
    sweeper_file(tmp_path, os.getppid())
    StopSignalPoller(tmp_path).check()
    assert followed == [gone, os.getppid()]
    (tmp_path / ".sweeper").unlink()
    with pytest.raises(Interrupted, match="over, or its folder is not shared"):
        StopSignalPoller(tmp_path).check()


def test_a_sweep_killed_and_not_waited_for_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(interruption, "_exit_when_parent_dies", lambda pid: None)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    sweeper_file(tmp_path, process.pid)
    StopSignalPoller(tmp_path).check()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(Interrupted, match="gone"):
        StopSignalPoller(tmp_path).check()
    process.communicate()


def test_on_another_machine_a_worker_listens_for_its_sweep(tmp_path, monkeypatch, gone):
    """The number of a process means nothing there, not even where there is one of it."""
    for name, seconds in (("_POLL", 0.0), ("_HEARTBEAT", 0.1), ("_HEARTBEAT_TIMEOUT", 0.3)):
        monkeypatch.setattr(interruption, f"{name}_SECONDS", seconds)
    path = sweeper_file(tmp_path, gone, "another-machine")
    watch = StopSignalPoller(tmp_path)
    for _ in range(3):
        watch.check()
        time.sleep(0.2)
        path.touch()
    watch.check()
    time.sleep(0.4)
    with pytest.raises(Interrupted, match="nothing is heard"):
        watch.check()


def test_a_job_that_starts_after_its_sweep_was_killed_does_not_begin(tmp_path, monkeypatch):
    monkeypatch.setattr(interruption, "_HEARTBEAT_SECONDS", 0.1)
    path = sweeper_file(tmp_path, 1, "another-machine", age=3600)
    with pytest.raises(Interrupted, match="before it started"):
        StopSignalPoller(tmp_path).check()
    monkeypatch.setattr(interruption, "_HEARTBEAT_SECONDS", 5)
    beat = threading.Timer(0.5, path.touch)
    beat.start()
    StopSignalPoller(tmp_path).check()  # the clocks differ, and the sweep is alive
    beat.join()


def test_a_sweep_is_heard_of_while_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(interruption, "_HEARTBEAT_SECONDS", 0.05)
    path = tmp_path / ".sweeper"
    with sweeping(tmp_path):
        assert is_sweeper()
        assert path.read_text() == f"{interruption._host_id()} {os.getpid()}\n"
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 30
        while path.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert path.stat().st_mtime > 0
        StopSignalPoller(tmp_path).check()
        stop_sweep(tmp_path, "error")
        with pytest.raises(RunsFailed, match="on_error=stop"):
            StopSignalPoller(tmp_path).check()
    assert not path.exists()
    assert not is_sweeper()


def test_what_two_ways_ask_of_a_worker_is_asked_once():
    """A terminal and a launcher, or a scheduler that signals a job's processes and its steps."""
    code = (
        "import os, signal, sys\n"
        "from mixbench.core import interruption\n"
        "from mixbench.core.interruption import Interrupted, StopSignalPoller\n"
        "from mixbench.core.interruption import handle_signals, defer_signals\n"
        "interruption._request.worker = sys.argv[1] == 'worker'\n"
        "with handle_signals(), defer_signals():\n"
        "    for _ in range(2):\n"
        "        os.kill(os.getpid(), getattr(signal, sys.argv[2]))\n"
        "    try:\n"
        "        StopSignalPoller(None).check()\n"
        "    except Interrupted as error:\n"
        "        print('asked by', error.why, flush=True)\n"
    )
    for who, name, ended in (
        ("worker", "SIGINT", 0),
        ("worker", "SIGUSR2", 0),
        ("person", "SIGTERM", 0),
        ("person", "SIGINT", 130),
    ):
        command = [sys.executable, "-c", code, who, name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == ended, (who, name)
        assert done.stdout.startswith("" if ended else f"asked by {name}")
        assert bool(done.stdout) == (ended == 0)


def test_a_worker_ends_after_its_sweeper_and_the_run_in_it(tmp_path, gone):
    """A pool's worker would wait for its next task for ever."""
    sweeper_file(tmp_path, gone)
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from mixbench.core.interruption import Interrupted, StopSignalPoller, defer_signals\n"
        "with defer_signals():\n"
        "    try:\n"
        "        StopSignalPoller(Path(sys.argv[1])).check()\n"
        "    except Interrupted:\n"
        "        time.sleep(2)\n"
        "    print('the run is over', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
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
        assert RunFolder.at(log.parent).verified_result() is not None
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
        RunFolder.at(next(folder.glob("outputs/runs/*"))).read_result()
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
    del result["sha256"]  # as if it had been written so
    second.result.write_text(json.dumps(result))
    found = torture.differences(other, whole, expected)
    assert sorted(text.partition(":")[0] for text in found) == [
        f"left over in {second.path.name}", "metrics differs", "no sound result",
        "the report differs",
    ]  # fmt: skip
