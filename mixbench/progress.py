"""What is shown while a run trains: one live line on a terminal, one plain line per epoch elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:  # training imports torch; displays need only its types
    from mixbench.training import Callback, Epoch, Step, Trainer


class EpochLines:
    """Prints a line at the end of every epoch."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._clock = time.perf_counter()
        self._first_step: int | None = None

    def on_step(self, step: Step) -> None:
        if self._first_step is None:
            self._first_step = step.step - 1

    def on_epoch(self, epoch: Epoch, trainer: Trainer) -> None:
        seconds = time.perf_counter() - self._clock
        rate = (epoch.step - (self._first_step or 0)) / seconds
        metric = trainer.dataset.metric
        self.console.print(
            f"epoch {epoch.epoch}/{trainer.epochs}  step {epoch.step}/{trainer.steps}"
            f"  loss {epoch.metrics['train/loss']:.4f}"
            f"  valid {metric} {epoch.metrics[f'valid/{metric}']:.4f}"
            f"  {rate:.1f} steps/s  {(trainer.steps - epoch.step) / rate:.0f} s left",
            highlight=False,
            soft_wrap=True,
        )


class LiveLine:
    """Redraws one line: epoch, step, loss, metric, steps a second, time left."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._task = progress.add_task("", total=None, loss="", score="", rate="")
        self._score = ""
        self._clock = time.perf_counter()
        self._first_step: int | None = None

    def on_step(self, step: Step) -> None:
        if self._first_step is None:
            self._first_step = step.step - 1
        rate = (step.step - self._first_step) / (time.perf_counter() - self._clock)
        self.progress.update(
            self._task,
            completed=step.step,
            total=step.steps,
            description=f"epoch {step.epoch}/{step.epochs}  step {step.step}/{step.steps}",
            loss=f"loss {step.loss:.4f}",
            score=self._score,
            rate=f"{rate:.1f} steps/s",
        )

    def on_epoch(self, epoch: Epoch, trainer: Trainer) -> None:
        metric = trainer.dataset.metric
        self._score = f"valid {metric} {epoch.metrics[f'valid/{metric}']:.4f}"
        self.progress.update(self._task, score=self._score)


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
