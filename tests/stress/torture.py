"""`python -m tests.stress.torture`: kill a comparison again and again, and see what it finds.

A small comparison runs undisturbed once. Then, for each launcher, the same command is started in a
new folder, killed with all its processes by SIGKILL after a random time, and started again, until
it has been killed as often as asked; a last start finishes it. Every record must be there once and
whole, and the report must equal the undisturbed one, timings aside.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mixbench.core.errors import Parser, RunsFailed
from mixbench.records.folder import RunFolder

# Long enough to be hit everywhere, short enough to be started a hundred times.
COMPARISON = ("sweep=torture",)


# What differs between two undisturbed runs of the same command.
_TIMINGS = {
    "seconds", "started", "wall_seconds", "tokens_per_second", "earlier", "created", "records",
    "command", "commands", "launched", "starts", "machine", "history", "folder", "path", "paths",
    "launcher", "first_started", "last_started",
}  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Entry point.

    Raises:
        RunsFailed: Something was lost, doubled or corrupt, or the report came out differently.
    """
    given = _parse(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    random.seed(given.seed)
    command = [sys.executable, "-m", "mixbench", *(given.overrides or COMPARISON)]
    started = time.perf_counter()
    whole = given.out / "undisturbed"
    subprocess.run([*command, f"output_dir={whole}"], check=True, stdout=subprocess.DEVNULL)
    longest = time.perf_counter() - started
    expected = report_of(whole)
    print(f"undisturbed: {longest:.0f} s, {len(records_of(whole))} records", flush=True)
    for launcher in given.launchers.split(","):
        folder = given.out / launcher
        line = [*command, f"output_dir={folder}", f"hydra/launcher={launcher}"]
        kills = killed(line, given.kills, longest)
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        faults = differences(folder, whole, expected)
        print(f"{launcher}: killed {kills} times, {len(faults)} differences", flush=True)
        if faults:
            raise RunsFailed("; ".join(faults[:5]))


def killed(line: Sequence[str], kills: int, longest: float) -> int:
    """Start a command and kill its process group at random instants; how often it was killed.

    What has been done is kept, so that later starts have less to do: once a start finishes by
    itself, the results are taken away from half of the runs, and it goes on.
    """
    done = 0
    while done < kills:
        process = subprocess.Popen(
            line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            process.wait(timeout=random.uniform(0.5, min(longest, 12.0)))
        except subprocess.TimeoutExpired:
            # Alone, so that its workers are left behind, or all of them together.
            kill = os.kill if random.random() < 0.5 else os.killpg
            kill(process.pid, signal.SIGKILL)
            process.wait()
            done += 1
            continue
        output = next(text for text in line if text.startswith("output_dir="))
        for folder in records_of(Path(output.partition("=")[2])):
            if random.random() < 0.5:
                folder.result.unlink(missing_ok=True)
            if random.random() < 0.5:
                folder.checkpoint.unlink(missing_ok=True)
    return done


def records_of(output_dir: Path) -> list[RunFolder]:
    """The folders of all runs."""
    return [RunFolder.at(path) for path in sorted((output_dir / "runs").iterdir())]


def report_of(output_dir: Path) -> Any:
    """The newest report, without what the clock and the places of files decide."""
    reports = sorted(output_dir.glob("sweeps/*/report.json"), key=lambda path: path.stat().st_mtime)
    return without_timings(json.loads(reports[-1].read_text()))


def without_timings(content: Any) -> Any:
    """Nested content less its timings."""
    if isinstance(content, dict):
        kept = {key: value for key, value in content.items() if key not in _TIMINGS}
        return {key: without_timings(value) for key, value in kept.items()}
    if isinstance(content, list):
        return [without_timings(value) for value in content]
    return content


def differences(folder: Path, whole: Path, expected: Any) -> list[str]:
    """What a disturbed comparison has lost, doubled, broken, or found otherwise."""
    found = {run.path.name: run for run in records_of(folder)}
    wanted = {run.path.name: run for run in records_of(whole)}
    faults = [f"lost: {name}" for name in wanted.keys() - found.keys()]
    faults += [f"not in the undisturbed: {name}" for name in found.keys() - wanted.keys()]
    for name in wanted.keys() & found.keys():
        result, other = found[name].verified_result(), wanted[name].verified_result()
        if result is None or other is None:
            faults.append(f"no sound result: {name}")
            continue
        for key in ("status", "metrics", "diagnostics", "steps", "signature"):
            if getattr(result, key) != getattr(other, key):
                faults.append(f"{key} differs: {name}")
        leftovers = [path.name for path in found[name].path.iterdir() if path.name.startswith(".")]
        odd = set(leftovers) - {".hydra", ".lock"}
        if odd:
            faults.append(f"left over in {name}: {', '.join(sorted(odd))}")
    if report_of(folder) != expected:
        faults.append("the report differs")
    return faults


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="python -m tests.stress.torture", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("overrides", nargs="*", help="another comparison, e.g. sweep=laplacian")
    parser.add_argument("--kills", type=int, default=100, help="kills for each launcher")
    parser.add_argument("--launchers", default="basic,joblib", help="Hydra launchers")
    parser.add_argument("--seed", type=int, default=0, help="of the instants")
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    return parser.parse_intermixed_args(list(arguments))
