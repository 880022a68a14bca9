"""What a batch is to the model: which positions count, the loss, predictions from scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from mixbench.config.targets import target
from mixbench.datasets.base import IGNORE, Dataset, Examples

Model = Callable[..., Tensor]


class Objective(ABC):
    """How a dataset's rows train a model and are predicted.

    Letters: B rows of a batch, T length, M positions that count, N classes.

    Attributes:
        name: What datasets and models call it.
    """

    name: ClassVar[str]

    def tensors(
        self, rows: Examples, device: torch.device, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Inputs and targets on the device; real numbers in the model's precision."""
        inputs, targets = (
            torch.from_numpy(array).to(device) for array in (rows.inputs, rows.targets)
        )
        if inputs.is_floating_point():
            inputs = inputs.to(dtype)
        if targets.is_floating_point():
            targets = targets.to(dtype)
        return inputs, targets

    @abstractmethod
    def counts(self, targets: Tensor) -> Tensor:
        """Which targets count, a mask of their shape."""

    @abstractmethod
    def outputs(self, model: Model, inputs: Tensor, counts: Tensor) -> Tensor:
        """What the model gives for the M positions that count, `[M, ...]`."""

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        """Of outputs `[M, ...]` against their targets `[M]`."""

    @abstractmethod
    def predictions(self, outputs: Tensor) -> Tensor:
        """Predicted targets `[M]`."""


class Tokens(Objective):
    """Classification where a label is: tokens `[B, T]` to logits, cross entropy, the largest."""

    name = "tokens"

    def counts(self, targets: Tensor) -> Tensor:
        return targets != IGNORE

    def outputs(self, model: Model, inputs: Tensor, counts: Tensor) -> Tensor:
        return model(inputs, counts)

    def loss(self, outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        return F.cross_entropy(outputs, targets, reduction=reduction)

    def predictions(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)


class Values(Objective):
    """Regression, one number a row: windows `[B, T]` to values `[B]`, squared error."""

    name = "values"

    def counts(self, targets: Tensor) -> Tensor:
        return torch.ones_like(targets, dtype=torch.bool)

    def outputs(self, model: Model, inputs: Tensor, counts: Tensor) -> Tensor:
        return model(inputs)

    def loss(self, outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        return F.mse_loss(outputs, targets, reduction=reduction)

    def predictions(self, outputs: Tensor) -> Tensor:
        return outputs


_OURS: dict[str, type[Objective]] = {each.name: each for each in (Tokens, Values)}


def objective_of(dataset: Dataset) -> Objective:
    """The objective that a dataset names: one of ours, or a class of the user's by its path.

    Raises:
        SettingError: There is no such class.
    """
    if dataset.objective in _OURS:
        return _OURS[dataset.objective]()
    found = target("dataset.objective", {"_target_": dataset.objective})
    made = found()
    assert isinstance(made, Objective), f"{dataset.objective} is no Objective"
    return made
