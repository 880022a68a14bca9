"""Costs by formula: multiplies, additions and exponentials per token."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Operations:
    """Scalar operations by kind.

    A division counts as a multiply; an absolute difference is one operation, its subtraction
    included; what is folded into per-token factors (a scale of the scores, say) counts there.
    """

    multiplies: float = 0
    additions: float = 0
    absolute_differences: float = 0
    exponentials: float = 0

    def __add__(self, other: Operations) -> Operations:
        return Operations(*(a + b for a, b in zip(self.as_tuple(), other.as_tuple(), strict=True)))

    def __mul__(self, times: float) -> Operations:
        return Operations(*(a * times for a in self.as_tuple()))

    def as_tuple(self) -> tuple[float, ...]:
        return tuple(asdict(self).values())

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def linear(d_in: int, d_out: int, bias: bool = True) -> Operations:
    """One row through a linear layer."""
    return Operations(multiplies=d_in * d_out, additions=d_in * d_out - (0 if bias else d_out))


def dot(width: int) -> Operations:
    """A dot product."""
    return Operations(multiplies=width, additions=width - 1)


def sigmoid() -> Operations:
    """`1 / (1 + exp(-x))`."""
    return Operations(multiplies=1, additions=1, exponentials=1)


def softmax_entry() -> Operations:
    """One entry of a softmax: subtract the maximum, exponentiate, sum, divide."""
    return Operations(multiplies=1, additions=2, exponentials=1)


def weighted_sum(width: int) -> Operations:
    """One entry of a weighted sum of vectors."""
    return Operations(multiplies=width, additions=width)
