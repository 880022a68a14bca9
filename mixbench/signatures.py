"""Predictions that a mixer makes about itself, checked against what a trained one does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from mixbench.mixers.mixer import Mixer


UNEVALUATED = "the signature can be evaluated"
"""The name of the check that stands for a signature that raises."""


@dataclass(frozen=True)
class Check:
    """One prediction and what was observed.

    Attributes:
        name: What is claimed, in a few words.
        predicted: The claim's value or relation.
        observed: What the trained mixer did, numbers where there are any.
        tolerance: The deviation allowed; None where the claim is a relation or exact.
        holds: Whether the observation agrees.
    """

    name: str
    predicted: Any
    observed: Any
    tolerance: float | None
    holds: bool

    @staticmethod
    def close(name: str, predicted: float, observed: float, tolerance: float) -> Check:
        """Observed within `tolerance` of predicted."""
        holds = abs(observed - predicted) <= tolerance  # false for NaN
        return Check(name, predicted, observed, tolerance, holds)

    @staticmethod
    def rising(name: str, observed: list[float]) -> Check:
        """Every observed value larger than the one before."""
        holds = all(a < b for a, b in pairwise(observed))
        return Check(name, "strictly rising", observed, None, holds)


def evaluate(mixer: Mixer, x: Tensor) -> list[Check]:
    """A mixer's checks on the inputs `[B, T, D]` it met.

    A signature that raises does not hold, and the exception is what was observed: a run's result
    must not be lost to a mixer's faulty claim about itself.
    """
    try:
        with torch.no_grad():
            return mixer.signature(x)
    except Exception as error:
        observed = f"{type(error).__name__}: {error}"
        return [Check(UNEVALUATED, "yes", observed, None, False)]


def summarise(layers: Iterable[list[Check]]) -> dict[str, Any] | None:
    """The checks of all layers for the record; a check holds if it holds in every layer.

    Returns:
        `{"holds", "held", "of", "failing", "checks"}`, or None if no layer states anything.
    """
    checks = [
        {"layer": layer, **asdict(check)} for layer, stated in enumerate(layers) for check in stated
    ]
    if not checks:
        return None
    names = list(dict.fromkeys(check["name"] for check in checks))
    failing = [name for name in names if not all(c["holds"] for c in checks if c["name"] == name)]
    return {
        "holds": not failing,
        "held": len(names) - len(failing),
        "of": len(names),
        "failing": failing,
        "checks": checks,
    }
