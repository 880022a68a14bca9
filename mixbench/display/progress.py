"""What is shown while something takes long: live lines on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mixbench.records.folder import RunFolder
from mixbench.records.result import COMPLETED, Result

if TYPE_CHECKING:
    from mixbench.train.events import Callback, Epoch, Step, Training


class _Rate:
    """Steps a second since the first step that this process took."""

    def __init__(self) -> None:
        self._start: tuple[int, float] | None = None

    def at(self, step: int) -> float | None:
        """The rate at a step; None while there is none to measure."""
        now = time.perf_counter()
        if self._start is None:
            self._start = (step, now)
        first, clock = self._start
        return (step - first) / (now - clock) if step > first else None


class EpochLines:
    """Prints a line at the end of every epoch."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._rate = _Rate()

    def on_step(self, step: Step, trainer: Training) -> None:
        self._rate.at(step.step)

    def on_epoch(self, epoch: Epoch, trainer: Training) -> None:
        metric = trainer.dataset.metric
        rate = self._rate.at(epoch.step)
        left = (
            f"  {rate:.1f} steps/s  {(trainer.steps - epoch.step) / rate:.0f} s left"
            if rate
            else ""
        )
        self.console.print(
            f"epoch {epoch.epoch}/{trainer.epochs}  step {epoch.step}/{trainer.steps}"
            f"  loss {epoch.metrics['train/loss']:.4f}"
            f"  valid {metric} {epoch.metrics[f'valid/{metric}']:.4f}{left}",
            highlight=False,
            soft_wrap=True,
        )


class LiveLine:
    """Redraws one line: epoch, step, loss, metric, steps a second, time left."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._task = progress.add_task("starting", total=None, loss="", score="", rate="")
        self._rate = _Rate()

    def on_step(self, step: Step, trainer: Training) -> None:
        rate = self._rate.at(step.step)
        self.progress.update(
            self._task,
            completed=step.step,
            total=step.steps,
            description=f"epoch {step.epoch}/{step.epochs}  step {step.step}/{step.steps}",
            loss=f"loss {step.loss:.4f}",
            rate=f"{rate:.1f} steps/s" if rate else "",
        )

    def on_epoch(self, epoch: Epoch, trainer: Training) -> None:
        metric = trainer.dataset.metric
        score = f"valid {metric} {epoch.metrics[f'valid/{metric}']:.4f}"
        self.progress.update(self._task, score=score)


@contextmanager
def display(console: Console) -> Iterator[Callback]:
    """The display that suits the console."""
    if not console.is_terminal:
        yield EpochLines(console)
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[loss]}"),
        TextColumn("{task.fields[score]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=console) as progress:
        yield LiveLine(progress)


class SweepWatch:
    """Follows a sweep's runs by their records, whichever launcher and process runs them.

    Args:
        folders: The runs' folders. A result that is there already is an old one, about to be
            replaced.
    """

    def __init__(self, folders: Sequence[RunFolder]) -> None:
        self._pending = {folder: _changed(folder.result) for folder in folders}
        self._old = {folder: _changed(_first_file(folder)) for folder in folders}
        self.of = len(folders)
        self.done = 0
        self.lost = 0

    def finished(self) -> Iterator[tuple[RunFolder, Result]]:
        """Runs that left their result since the last call, counted one by one."""
        for folder, old in list(self._pending.items()):
            if _changed(folder.result) in (None, old):
                continue
            result = folder.read_result()
            if result is not None:
                del self._pending[folder]
                self.done += 1
                self.lost += result.status != COMPLETED
                yield folder, result

    def running(self) -> int:
        """Runs that have begun and left no result yet; one whose process died is among them."""
        return sum(
            _changed(_first_file(folder)) not in (None, self._old[folder])
            for folder in self._pending
        )


@contextmanager
def sweep_display(console: Console, title: str, folders: Sequence[RunFolder]) -> Iterator[None]:
    """Show how many of the runs are done: one bar on a terminal, a line per run elsewhere."""
    watch = SweepWatch(folders)
    over = threading.Event()
    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed}/{task.total} done{task.fields[others]}"),
        TimeRemainingColumn(),
    ]
    progress = Progress(*columns, console=console, disable=not console.is_terminal)
    task = progress.add_task(title, total=watch.of, others="")

    def look() -> None:
        for folder, result in watch.finished():
            if not console.is_terminal:
                console.print(_run_line(watch, folder, result), markup=False, highlight=False)
        lost = f", {watch.lost} failed" if watch.lost else ""
        running = f", {watch.running()} running" if console.is_terminal else ""
        progress.update(task, completed=watch.done, others=running + lost)

    def follow() -> None:
        took = 0.0
        while not over.wait(max(0.5, 20 * took)):  # thousands of runs, perhaps over a network
            clock = time.monotonic()
            look()
            took = time.monotonic() - clock

    follower = threading.Thread(target=follow, daemon=True)
    console.print(f"{title}: {watch.of} to run", markup=False, highlight=False)
    with progress:
        follower.start()
        try:
            yield
        finally:
            over.set()
            follower.join()
            look()


@contextmanager
def steps_display(total: int) -> Iterator[Callable[[str], None]]:
    """Show how many steps of a command are done, and the time left, where a terminal shows errors.

    Yields:
        What is to be called with a step's name when it begins.
    """
    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
    ]
    console = Console(stderr=True)  # what goes to standard output may be for another program
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task("starting", total=total)
        begun = 0

        def begin(name: str) -> None:
            nonlocal begun
            bar.update(task, description=name, completed=begun)
            begun += 1

        yield begin


def _first_file(folder: RunFolder) -> Path:
    """What a run writes before anything else."""
    return folder.path / ".hydra" / "config.yaml"


def _changed(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _run_line(watch: SweepWatch, folder: RunFolder, result: Result) -> str:
    name = folder.path.name.rpartition("-")[0]
    score = result.score("valid")
    shown = f"valid {result.metric} {score:.4f}" if score is not None else result.status
    return f"{watch.done}/{watch.of}  {name}  {shown}  {result.seconds.total:.0f} s"
