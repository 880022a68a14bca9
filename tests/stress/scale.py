"""A sweep of ten thousand runs, without training any: how long everything around the runs takes.

    python -m tests.stress.scale --out FOLDER --runs 10000

The records are made up from one true run and written by the functions that write true ones; the
sweeper plans, skips and reports as it does after training. Every part that a user waits for is then
run in a process of its own, and its seconds and peak memory are told.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace
from rich import box
from rich.table import Table

from mixbench.cli.main import main as mixbench
from mixbench.core import seeds
from mixbench.core.errors import Parser, RunsFailed, at_least
from mixbench.core.files import make_folder, write_json
from mixbench.display.console import make_console
from mixbench.records.folder import RunFolder, read_history, write_history
from mixbench.sweeps.base import CheckedSweeper, Job

# Of `sweep=laplacian`: two arms of three trials on the selection seeds, both on the others.
_TRIALS, _ARMS = 6, 2


@dataclass(frozen=True)
class Measured:
    """A part: wall-clock seconds, and megabytes at its process's peak."""

    name: str
    seconds: float
    megabytes: float


def main(arguments: Sequence[str]) -> None:
    """Entry point.

    Raises:
        SettingError: Wrong arguments.
        RunsFailed: A part did not do what it should.
    """
    given = _parse(arguments)
    at_least("--runs", given.runs, 4 * (_TRIALS + _ARMS))
    out: Path = given.out
    make_folder(out, new=True, key="--out")
    eval_seeds = max(2, given.runs // 50)
    selection_seeds = (given.runs - _ARMS * eval_seeds) // _TRIALS
    runs = _TRIALS * selection_seeds + _ARMS * eval_seeds
    sweep = [
        "sweep=laplacian", f"sweep.selection_seeds={selection_seeds}",
        f"sweep.eval_seeds=[{','.join(str(10**6 + i) for i in range(eval_seeds))}]",
        f"output_dir={out / 'outputs'}",
    ]  # fmt: skip
    print(f"writing {runs:,} records", flush=True)
    clock = time.perf_counter()
    # Elsewhere: a process's peak counts that of the one that started it.
    writer = multiprocessing.get_context("spawn").Process(target=_write_records, args=(out, sweep))
    writer.start()
    writer.join()
    first = time.perf_counter() - clock
    records = sum(1 for _ in (out / "outputs" / "runs").iterdir())
    if records != runs:
        raise RunsFailed(f"{records} records for {runs} runs")
    report = ["report", str(out / "outputs"), "--out", str(out / "report")]
    claims = (
        "import sys; from pathlib import Path; from mixbench.records.folder import RunFolder;"
        "assert not any(RunFolder.at(p).claimed() for p in Path(sys.argv[1]).iterdir())"
    )
    command = [sys.executable, "-m", "mixbench"]
    parts = [
        _measured("plan: sweep.preview=true", [*command, *sweep, "sweep.preview=true"], out),
        _measured("start again: all runs skipped, report made", [*command, *sweep], out),
        _measured("ask every run whether another process is at it",
                  [sys.executable, "-c", claims, str(out / "outputs" / "runs")], out),
        _measured("report: tables", [*command, *report, "--format", "terminal,json,md"], out),
        _measured("report: everything", [*command, *report], out),
    ]  # fmt: skip
    table = Table(title=f"{runs:,} runs", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("part", "seconds", "peak MB"):
        table.add_column(name, justify="left" if name == "part" else "right")
    for part in parts:
        table.add_row(part.name, f"{part.seconds:.1f}", f"{part.megabytes:,.0f}")
    console = make_console()
    console.print(table)
    size = sum(path.stat().st_size for path in (out / "outputs").rglob("*") if path.is_file())
    console.print(
        f"planning and writing the records took {first:.0f} s; they are {size / 1e6:,.0f} MB "
        f"({size / runs / 1e3:.1f} kB a run, without checkpoints)",
        highlight=False,
    )
    content = {"runs": runs, "bytes": size, "parts": [vars(part) for part in parts]}
    write_json(out / "scale.json", content)
    if not given.keep:
        shutil.rmtree(out / "outputs")


def _write_records(out: Path, sweep: Sequence[str]) -> None:
    with patch.object(CheckedSweeper, "_launch", _fabricating(_true_run(out))):
        _call(sweep, out / "first.log")


def _true_run(out: Path) -> RunFolder:
    """A run that was trained, for its record's content."""
    few = ["mixer=laplacian", "dataset=forecasting", "epochs=2", "dataset.num_train=128"]
    _call([*few, f"output_dir={out / 'true'}"], out / "true.log")
    (path,) = (out / "true" / "runs").iterdir()
    return RunFolder.at(path)


def _call(arguments: Sequence[str], log: Path) -> None:
    """The command in this process, its output to a file."""
    with log.open("w") as file, patch.object(sys, "argv", ["mixbench", *arguments]):
        before = os.dup(1)
        sys.stdout.flush()
        os.dup2(file.fileno(), 1)
        try:
            mixbench()
        finally:
            sys.stdout.flush()
            os.dup2(before, 1)
            os.close(before)


def _fabricating(template: RunFolder) -> Callable[[CheckedSweeper, Any, Sequence[Job], int], Any]:
    """What stands in for a launcher: it leaves a completed record for every job."""
    result = template.read_result()
    assert result is not None
    history = read_history(template.history)

    def launch(sweeper: CheckedSweeper, launcher: Any, jobs: Sequence[Job], first: int) -> Any:
        for overrides, folder in jobs:
            texts = dict(text.partition("=")[::2] for text in overrides)
            seed, tested = int(texts["seed"]), texts["test"] == "true"
            noise = float(seeds.stream(seed, "scale", texts["mixer"]).normal(0.01, 0.002))
            config = {**result.config, "seed": seed, "test": tested, "lr": float(texts["lr"])}
            config["mixer"] = {**config["mixer"], "_target_": f"mixbench.mixers.{texts['mixer']}.M"}
            splits = ("valid", "test") if tested else ("valid",)
            folder.create()
            folder.lock.touch()  # as a run leaves it, so that claims are really asked for
            write_history(folder.history, history)
            made_up = replace(
                result,
                identity=folder.identity,
                seed=seed,
                config=config,
                names={**result.names, "mixer": texts["mixer"]},
                metrics={f"{split}/mse": noise for split in splits},
                history_sha256=folder.history_digest(),
            )
            folder.write_result(made_up)
        sweeper.launched += len(jobs)
        return []

    return launch


def _measured(name: str, command: Sequence[str], folder: Path) -> Measured:
    """Run a command to its end.

    Raises:
        RunsFailed: It failed.
    """
    print(f"measuring: {name}", flush=True)
    log = folder / "part.log"
    clock = time.perf_counter()
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - clock
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RunsFailed(f"{name} ended with {process.returncode}: {log.read_text()[-2000:]}")
    unit = 1 if sys.platform == "darwin" else 1024  # bytes, or kilobytes
    return Measured(name, seconds, usage.ru_maxrss * unit / 1e6)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="mixbench scale", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder, to be made")
    parser.add_argument("--runs", type=int, default=10_000, help="how many (default: 10000)")
    parser.add_argument("--keep", action="store_true", help="keep the made-up records")
    return parser.parse_args(list(arguments))
