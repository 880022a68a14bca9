"""Predictions that a mixer makes about itself, checked against what a trained one does."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

UNEVALUATED = "the signature can be evaluated"
"""The name of the check that stands for a signature that raises."""


@dataclass(frozen=True)
class Claim:
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
    def close(name: str, predicted: float, observed: float, tolerance: float) -> Claim:
        """Observed within `tolerance` of predicted."""
        holds = abs(observed - predicted) <= tolerance  # false for NaN
        return Claim(name, predicted, observed, tolerance, holds)

    @staticmethod
    def rising(name: str, observed: list[float]) -> Claim:
        """Every observed value larger than the one before."""
        holds = all(a < b for a, b in pairwise(observed))
        return Claim(name, "strictly rising", observed, None, holds)
