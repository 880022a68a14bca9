"""Numbers and intervals as text."""

from __future__ import annotations

from collections.abc import Sequence


def number(value: float) -> str:
    """Four digits behind the point, or three significant ones where that shows nothing."""
    return f"{value:.4f}" if abs(value) >= 1e-2 or value == 0 else f"{value:.3g}"


def quantity(value: float) -> str:
    """A whole number in full, any other one as `number`."""
    return f"{value:,.0f}" if float(value).is_integer() else number(value)


def signed(value: float | None) -> str:
    """A difference, with its sign."""
    return "unbounded" if value is None else f"{value:+.3g}"


def interval(ends: Sequence[float | None]) -> str:
    """A confidence interval of a difference."""
    return f"[{signed(ends[0])}, {signed(ends[1])}]"
