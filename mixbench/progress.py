"""What is shown while a run trains: a live line on a terminal, a plain line per epoch elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:  # training imports torch; displays need only its types
    from mixbench.training import Callback, Epoch, Step, Trainer


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

    def on_step(self, step: Step) -> None:
        self._rate.at(step.step)

    def on_epoch(self, epoch: Epoch, trainer: Trainer) -> None:
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

    def on_step(self, step: Step) -> None:
        rate = self._rate.at(step.step)
        self.progress.update(
            self._task,
            completed=step.step,
            total=step.steps,
            description=f"epoch {step.epoch}/{step.epochs}  step {step.step}/{step.steps}",
            loss=f"loss {step.loss:.4f}",
            rate=f"{rate:.1f} steps/s" if rate else "",
        )

    def on_epoch(self, epoch: Epoch, trainer: Trainer) -> None:
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
