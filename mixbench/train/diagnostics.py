"""The numbers that mixers tell about themselves, over a whole split."""

from __future__ import annotations

import numpy as np
from torch import nn

from mixbench.mixers.base import Mixer


class Diagnostics:
    """Gathers what `Mixer.diagnostics` says after each batch.

    A name that starts with `max_` or `min_` keeps the largest or smallest number of all layers and
    batches; any other one is their mean, a batch counting by its rows.
    """

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}

    def add(self, model: nn.Module, rows: int) -> None:
        """Take the numbers of every mixer in the model, inner ones too, on a batch of rows."""
        for module in model.modules():
            if isinstance(module, Mixer):
                for name, value in module.diagnostics().items():
                    self._seen.setdefault(name, []).append((float(value), rows))

    def numbers(self) -> dict[str, float]:
        """One number a name."""
        return {
            name: self._one(name, *zip(*seen, strict=True)) for name, seen in self._seen.items()
        }

    @staticmethod
    def _one(name: str, values: tuple[float, ...], rows: tuple[int, ...]) -> float:
        if name.startswith("max_"):
            return max(values)
        if name.startswith("min_"):
            return min(values)
        return float(np.average(values, weights=rows))
