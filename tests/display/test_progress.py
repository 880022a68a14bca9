"""What is shown while a sweep's runs train, from their records alone."""

from __future__ import annotations

import io
import os

from rich.console import Console

from mixbench.display.progress import SweepWatch, sweep_display
from mixbench.records.folder import RunFolder
from tests.support.records import fabricate


def touch(path, seconds):
    """Give a file another time of change."""
    os.utime(path, (seconds, seconds))


def test_runs_are_counted_once_and_old_results_are_not(tmp_path):
    old = RunFolder.at(fabricate(tmp_path, seed=0))
    new = RunFolder.at(fabricate(tmp_path, seed=1))
    text = new.result.read_text()
    new.result.unlink()
    (new.path / ".hydra" / "config.yaml").unlink(missing_ok=True)
    watch = SweepWatch([old, new])
    assert (watch.of, list(watch.finished()), watch.running()) == (2, [], 0)
    (new.path / ".hydra" / "config.yaml").write_text("")
    assert watch.running() == 1
    new.result.write_text(text)
    assert [folder for folder, _ in watch.finished()] == [new]
    assert (watch.done, watch.lost, watch.running()) == (1, 0, 0)
    assert list(watch.finished()) == []
    touch(old.result, 1e9)  # run again
    assert [folder for folder, _ in watch.finished()] == [old]


def test_diverged_and_failed_runs_are_counted_as_lost(tmp_path):
    paths = [fabricate(tmp_path, seed=s, status=t) for s, t in enumerate(("diverged", "failed"))]
    watch = SweepWatch([RunFolder.at(path) for path in paths])
    for path in paths:
        touch(path / "result.json", 1e9)
    assert len(list(watch.finished())) == 2
    assert watch.lost == 2


def test_off_a_terminal_every_run_is_a_line(tmp_path):
    path = fabricate(tmp_path, seed=3, valid=0.25)
    text = (path / "result.json").read_text()
    (path / "result.json").unlink()
    console = Console(file=io.StringIO(), width=100)
    with sweep_display(console, "one run", [RunFolder.at(path)]):
        (path / "result.json").write_text(text)
    lines = console.file.getvalue().splitlines()
    assert lines == ["one run: 1 to run", "1/1  mqar-attention-seed3  valid accuracy 0.2500  2 s"]


def test_on_a_terminal_one_bar_shows_all(tmp_path):
    path = fabricate(tmp_path, status="failed")
    (path / ".hydra" / "config.yaml").write_text("")
    text = (path / "result.json").read_text()
    (path / "result.json").unlink()
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with sweep_display(console, "one run", [RunFolder.at(path)]):
        (path / "result.json").write_text(text)
    assert "1/1 done, 0 running, 1 failed" in console.file.getvalue()
