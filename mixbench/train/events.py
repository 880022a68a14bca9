"""What training tells its callbacks, and how it says that it diverged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from mixbench.datasets.base import Dataset, SplitName


class Diverged(Exception):
    """Training met a number that is not finite.

    Attributes:
        step: Optimizer step, counted from 1, at which it was met.
        what: What was not finite: a loss, or the gradient of a named parameter.
    """

    def __init__(self, step: int, what: str) -> None:
        super().__init__(f"step {step}: {what} is not finite")
        self.step = step
        self.what = what


@dataclass(frozen=True)
class Epoch:
    """What one epoch left: the line of the history.

    Attributes:
        epoch: Its number, from 1.
        step: Optimizer steps so far.
        metrics: `train/loss`, and of the validation split `valid/...`.
        diagnostics: What the mixers tell about themselves on the validation split.
        lr: The learning rate now.
        seconds: In training so far.
    """

    epoch: int
    step: int
    metrics: dict[str, float]
    diagnostics: dict[str, float]
    lr: float
    seconds: float


@dataclass(frozen=True)
class Step:
    """Where training stands after an optimizer step, for progress displays."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float


class Training(Protocol):
    """What a callback sees of the trainer."""

    model: nn.Module
    dataset: Dataset
    step: int
    steps: int
    epoch: int
    epochs: int

    def state(self) -> dict[str, Any]: ...

    def tensors(self, split: SplitName) -> tuple[Tensor, Tensor]: ...


class Callback(Protocol):
    """Told about every step and every epoch; the trainer's `state()` can be taken at both."""

    def on_step(self, step: Step, trainer: Training) -> None: ...

    def on_epoch(self, epoch: Epoch, trainer: Training) -> None: ...
