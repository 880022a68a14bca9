"""`python -m tests.stress.launcher_check LAUNCHER`: a comparison under it, whole and disturbed.

First a comparison of 12 runs as it is; then one of 12 runs, of which four fail, that is stopped by
SIGINT, started again, has a worker killed, started again, is itself killed, and started once more.
Every failed run must have its own traceback, nothing may write once its sweep is over, and both
reports must be the basic launcher's, timings aside. With `--apart` the runs have process numbers of
their own, as on another machine; SLURM's, when their sweep is killed, then notice by its silence.

For SLURM and Ray a cluster of one node is started here; where that cannot be, it says why and ends.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from mixbench.records.folder import RunFolder
from mixbench.records.result import FAILED
from tests.stress import torture
from tests.support import fake_task
from tests.support.clusters import Unavailable, ray_cluster, slurm

ROOT = Path(__file__).parents[2]
# What a launcher needs beside its name.
OVERRIDES = {
    "basic": (),
    "joblib": ("hydra.launcher.n_jobs=2",),
    "submitit_local": (),
    "submitit_slurm": ("hydra.launcher.mem_gb=1",),
    "ray": ("hydra.launcher.ray.init.address=auto",),
}


class Fault(Exception):
    """The launcher did what it must not."""


@dataclass
class Check:
    """Comparisons under one launcher, below a folder.

    Args:
        launcher: Its name.
        folder: Takes the records, a folder for each launcher and comparison.
        environment: In which its commands find the cluster.
    """

    launcher: str
    folder: Path
    environment: dict[str, str]

    def start(self, sweep: str, launcher: str | None = None) -> subprocess.Popen[str]:
        """A comparison's command, in a process group of its own."""
        launcher = launcher or self.launcher
        return subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-m",
                    "mixbench",
                    "--config-dir",
                    "conf",
                    f"sweep={sweep}",
                ),
                *(f"output_dir={self.output(sweep, launcher)}", f"hydra/launcher={launcher}"),
                *OVERRIDES[launcher],
            ],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def output(self, sweep: str, launcher: str | None = None) -> Path:
        """Where a comparison's records go."""
        return self.folder / (launcher or self.launcher) / sweep

    def runs(self, sweep: str) -> list[RunFolder]:
        """The runs that have begun so far."""
        folder = self.output(sweep)
        return torture.records_of(folder) if (folder / "runs").exists() else []

    def at_work(self, sweep: str) -> list[RunFolder]:
        """The runs that some process is at, which has trained an epoch."""
        return [
            run
            for run in self.runs(sweep)
            if run.history.exists() and not run.result.exists() and run.claimed()
        ]

    def whole(self) -> None:
        """12 runs, undisturbed."""
        self.finish(self.start("small", "basic"), 0)
        self.finish(self.start("small"), 0)
        self.compare("small", 12)

    def disturbed(self) -> None:
        """12 runs, which meet all that can go wrong."""
        self.finish(self.start("disturbed", "basic"), 1)

        with self.told("interrupted"):
            sweep = self.started()
            os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does, to its workers as well
            said = self.finish(sweep, 128 + signal.SIGINT)
            if not said.splitlines()[-1].startswith("mixbench: interrupted; the same command"):
                raise Fault(f"it did not say how to go on:\n{said}")
            self.silent(within=0)
            saved = [run for run in self.runs("disturbed") if run.checkpoint.exists()]
            if not any("interrupted at step" in run.log.read_text() for run in saved):
                raise Fault("no run has saved")

        with self.told("a worker killed"):
            sweep = self.started()
            lost = self.at_work("disturbed")[0]
            os.kill(_holder(lost), signal.SIGKILL)
            self.finish(sweep, 1)
            self.silent(within=0)
            if lost.result.exists():
                raise Fault(f"a killed run has a result: {lost.path}")

        with self.told("the sweep killed"):
            sweep = self.started()
            os.kill(sweep.pid, signal.SIGKILL)
            sweep.communicate()
            self.silent(within=20)

        with self.told("finished"):
            self.finish(self.start("disturbed"), 1)
            self.compare("disturbed", 12)
        self.failures()

    def left(self) -> None:
        """Long runs that cannot see their sweep's process, when that is killed.

        They stop, saved, when they have heard nothing of it for a minute.
        """
        sweep = self.started("long")
        sweep.kill()
        sweep.communicate()
        if until(lambda: not self.at_work("long"), 10):
            raise Fault("the runs ended with their sweep: they were not apart from it")
        self.silent("long", within=90)
        for run in self.runs("long"):
            if "interrupted at step" not in run.log.read_text():
                raise Fault(f"it has not saved: {run.path}")

    def started(self, name: str = "disturbed") -> subprocess.Popen[str]:
        """Start a comparison, until one of its runs has trained an epoch."""
        sweep = self.start(name)
        until(lambda: bool(self.at_work(name)) or sweep.poll() is not None, 120)
        if sweep.poll() is not None:
            raise Fault(f"it ended before a run was at work:\n{sweep.communicate()[0]}")
        return sweep

    def silent(self, name: str = "disturbed", *, within: float) -> None:
        """See that no process is at a run, and that no record changes any more."""
        if not until(lambda: not any(run.claimed() for run in self.runs(name)), within):
            raise Fault(f"processes are at runs {within:.0f} s after their sweep")
        before = _changes(self.output(name))
        time.sleep(2)
        after = _changes(self.output(name))
        if before != after:
            changed = sorted(path for path, _ in before ^ after)
            raise Fault(f"written after the sweep's end: {', '.join(map(str, changed))}")

    def failures(self) -> None:
        """See that each failed run has its own status, reason and traceback, once."""
        lost = [
            run
            for run in self.runs("disturbed")
            if (result := run.read_result()) is not None
            and result.config["mixer"]["_target_"].endswith(".Failing")
        ]
        if len(lost) != 4:
            raise Fault(f"{len(lost)} runs of the arm that fails have a record, not 4")
        for run in lost:
            result, log = run.read_result(), run.log.read_text()
            assert result is not None
            reason = "Unpicklable: no mixer of width 16"
            if result.status != FAILED or result.reason != reason:
                raise Fault(f"{run.path} is {result.status}: {result.reason}")
            if log.count("Traceback (most recent call last)") != 1 or reason not in log:
                raise Fault(f"not one traceback of its own in {run.log}:\n{log}")
        called = list(self.output("disturbed").glob("sweeps/*/.submitit/*.out"))
        wrong = [
            path
            for path in called
            if "completed successfully" in path.read_text()
            and "Unpicklable" in path.with_suffix(".err").read_text()
        ]
        if wrong:
            raise Fault(f"called completed: {', '.join(map(str, wrong))}")

    def compare(self, sweep: str, number: int) -> None:
        """See that the records and the report are the basic launcher's."""
        whole = self.output(sweep, "basic")
        found = len(self.runs(sweep))
        faults = torture.differences(self.output(sweep), whole, torture.report_of(whole))
        if faults or found != number:
            raise Fault(f"{found} runs of {number}; {'; '.join(faults)}")
        print(f"{self.launcher}: {sweep}: {found} runs, the report is the basic one's", flush=True)

    def finish(self, sweep: subprocess.Popen[str], code: int) -> str:
        """Wait for a command; what it printed."""
        said, _ = sweep.communicate(timeout=600)
        if sweep.returncode != code:
            raise Fault(f"exit code {sweep.returncode} instead of {code}:\n{said}")
        return said

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Say how long a step took."""
        started = time.monotonic()
        yield
        print(f"{self.launcher}: {what}: {time.monotonic() - started:.0f} s", flush=True)


def until(ready: Callable[[], bool], seconds: float) -> bool:
    """Wait for something; whether it came about."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _holder(run: RunFolder) -> int:
    """The process that has claimed a run."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) == str(run.lock):
                return int(link.parts[2])
        except OSError:
            continue
    raise Fault(f"no process is at {run.path}")


def _changes(folder: Path) -> set[tuple[Path, int]]:
    files = [path for path in folder.glob("runs/*/**/*") if path.is_file()]
    return {(path, path.stat().st_mtime_ns) for path in files}


def main(arguments: Sequence[str]) -> int:
    """Entry point: 0 if all is well or cannot be tried here."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("launcher", choices=[name for name in OVERRIDES if name != "basic"])
    parts = ("whole", "disturbed", "left")
    parser.add_argument("--only", choices=parts, help="one of the parts")
    parser.add_argument("--keep", type=Path, help="a new folder for the records, which stay")
    parser.add_argument(
        "--apart",
        action="store_true",
        help="of a cluster: runs that cannot see the sweep's process, as on another machine",
    )
    given = parser.parse_args(arguments)
    clusters = {"submitit_slurm": slurm, "ray": ray_cluster}
    if given.apart and given.launcher not in clusters:
        parser.error(f"--apart is for {', '.join(clusters)}")
    # Ray ends the runs of a sweep that is gone by itself.
    parts = parts if given.apart and given.launcher == "submitit_slurm" else parts[:2]
    os.environ["PYTHONPATH"] = str(ROOT)  # clusters start their processes with it
    with tempfile.TemporaryDirectory() as scratch:
        folder = (given.keep or Path(scratch, "records")).absolute()
        folder.mkdir(parents=True)
        fake_task.write_conf(folder)
        cluster = clusters.get(given.launcher)
        try:
            with (
                cluster(Path(scratch, "c"), apart=given.apart)
                if cluster
                else nullcontext(dict(os.environ))
            ) as found:
                check = Check(given.launcher, folder, found)
                for part in [given.only] if given.only else parts:
                    with check.told(part):
                        getattr(check, part)()
        except Unavailable as error:
            print(f"skipped: {given.launcher}: {error}")
        except Fault as error:
            print(f"{given.launcher}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
