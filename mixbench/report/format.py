"""Numbers and lists as the tables write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mixbench.compare.content import EvaluationRun, Summary
from mixbench.core.numbers import number, quantity
from mixbench.core.overrides import as_override


@dataclass(frozen=True)
class TextTable:
    """A titled table of strings.

    Attributes:
        note: What its reader has to know.
        flagged: Numbers of the rows that say something is wrong.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    flagged: frozenset[int] = frozenset()


def observed(value: Any) -> str:
    """What a check predicted or saw, shortened."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {observed(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        shown = list(map(observed, value))
        if len(shown) > 8:
            shown = [*shown[:3], f"... {shown[-1]} ({len(shown)} values)"]
        return ", ".join(shown)
    return str(value)


def score_text(run: EvaluationRun | None) -> str:
    if run is None:
        return "missing"
    return run.status if run.test is None else number(run.test)


def values_text(values: Mapping[str, Any] | None) -> str:
    if values is None:
        return "-"
    return (
        ", ".join(f"{key}={as_override(value)}" for key, value in values.items()) or "as configured"
    )


def count_text(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def optional(value: float | None) -> str:
    return "-" if value is None else quantity(value)


def diagnostics_text(diagnostics: Mapping[str, float]) -> str:
    return ", ".join(f"{k.replace('_', ' ')} {quantity(v)}" for k, v in diagnostics.items())


def total_operations(operations: Mapping[str, float] | None) -> str:
    return "" if operations is None else f"{sum(operations.values()):,.0f}"


def by_kind(operations: Mapping[str, float] | None) -> str:
    kinds = (operations or {}).items()
    return ", ".join(f"{n:,.0f} {name.replace('_', ' ')}" for name, n in kinds if n)


def mean_text(summary: Summary, shown: Any = number) -> str:
    if summary.mean is None:
        return "-"
    low, high = summary.interval
    ends = "" if low is None else f" [{shown(low)}, {shown(high)}]"
    return f"{shown(summary.mean)}{ends}"
