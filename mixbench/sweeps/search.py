"""Random search: where an arm's trials are drawn from, and what happens at an edge.

Trials are independent draws, so that the expected validation score of the best of n (the curve
against budget) is what a smaller search would have found (Dodge et al. 2019, arXiv 1909.03004).
Never imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mixbench.core.errors import SettingError
from mixbench.core.overrides import as_override, is_number

if TYPE_CHECKING:
    import numpy as np


# A choice within this share of its range is on an edge, and an extension goes this share beyond it,
# on the range's own scale.
EDGE, BEYOND = 0.1, 1 / 3


_ATTEMPTS = 1000


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, uniform in their logarithm if `log`; whole ones if both are."""

    low: float
    high: float
    log: bool = True

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, rng: np.random.Generator) -> float:
        """One number, to four digits: it has to be typed again in overrides."""
        a, b = self._scaled(self.low), self._scaled(self.high)
        if self.whole and not self.log:
            return int(rng.integers(int(self.low), int(self.high) + 1))
        return self._number(a + (b - a) * float(rng.random()))

    def edge(self, value: float) -> str | None:
        """`low` or `high` where a value lies on that edge."""
        a, b = self._scaled(self.low), self._scaled(self.high)
        share = (self._scaled(value) - a) / (b - a)
        if share <= EDGE:
            return "low"
        return "high" if share >= 1 - EDGE else None

    def beyond(self, edge: str) -> Range | None:
        """What lies next to the range beyond an edge; None where there is nothing."""
        a, b = self._scaled(self.low), self._scaled(self.high)
        step = BEYOND * (b - a)
        if edge == "low":
            end = self._number(a - step)
            # Whole numbers round back to the edge where there is no room.
            return Range(end, self.low, self.log) if end < self.low else None
        return Range(self.high, self._number(b + step), self.log)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.log else float(value)

    def _number(self, scaled: float) -> float:
        value = math.exp(scaled) if self.log else scaled
        return round(value) if self.whole else float(f"{value:.4g}")


Space = Mapping[str, Range | tuple[Any, ...]]
"""By dotted key, a range or the values to choose from."""


def space(place: str, node: Mapping[str, Any]) -> dict[str, Range | tuple[Any, ...]]:
    """A checked search space from its nested description.

    Raises:
        SettingError: Some key is neither a range nor a list.
    """
    found: dict[str, Range | tuple[Any, ...]] = {}
    for key, value in node.items():
        where = f"{place}.{key}"
        if isinstance(value, (list, tuple)) and value:
            found[str(key)] = tuple(value)
        elif isinstance(value, Mapping) and {"low", "high"} & value.keys():
            found[str(key)] = _range(where, value)
        elif isinstance(value, Mapping) and value:
            inner = space(where, value)
            found |= {f"{key}.{below}": each for below, each in inner.items()}
        else:
            raise SettingError(
                where, expected="a range {low: ..., high: ...} or a list of values", got=value
            )
    return found


def draw(
    place: str, ranges: Space, number: int, seed: int, stage: int, drawn: Sequence[Any] = ()
) -> list[dict[str, Any]]:
    """Trials from a space, none like another one nor like those drawn before.

    A knob's draws depend on its name, not on the arm: arms that share a knob try the same values.

    Raises:
        SettingError: The space has too few different trials.
    """
    from mixbench.core import seeds

    streams = {key: seeds.stream(seed, "search", key, stage) for key in ranges}
    known = {_text(trial) for trial in drawn}
    found: list[dict[str, Any]] = []
    for _ in range(_ATTEMPTS * number):
        if len(found) == number:
            break
        trial = {
            key: each.draw(streams[key])
            if isinstance(each, Range)
            else each[int(streams[key].integers(len(each)))]
            for key, each in ranges.items()
        }
        if _text(trial) not in known:
            known.add(_text(trial))
            found.append(trial)
    if len(found) < number:
        raise SettingError(
            place,
            expected=f"a space with at least {number} different trials",
            got=f"one with {len(found)}",
            fix="widen it, or lower sweep.trials",
        )
    return found


def edges(ranges: Space, values: Mapping[str, Any]) -> dict[str, str]:
    """Which of the chosen values lie on an edge of their range, and on which."""
    found = {}
    for key, each in ranges.items():
        value = values.get(key)
        if isinstance(each, Range) and is_number(value):
            assert value is not None
            edge = each.edge(value)
            if edge is not None:
                found[key] = edge
    return found


def extended(ranges: Space, edges: Mapping[str, str]) -> tuple[Space, Space]:
    """What an extension draws from, beyond edges only, and the space with that added to it."""
    drawn_from, widened = dict(ranges), dict(ranges)
    for key, edge in edges.items():
        inside = ranges[key]
        assert isinstance(inside, Range)
        outside = inside.beyond(edge)
        if outside is not None:
            drawn_from[key] = outside
            low, high = min(inside.low, outside.low), max(inside.high, outside.high)
            widened[key] = Range(low, high, inside.log)
    return drawn_from, widened


def _text(trial: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={as_override(value)}" for key, value in trial.items())


def _range(where: str, node: Mapping[str, Any]) -> Range:
    unknown = sorted(set(node) - {"low", "high", "log"})
    if unknown:
        raise SettingError(f"{where}.{unknown[0]}", expected="low, high or log", got="another key")
    log = node.get("log", True)
    if not isinstance(log, bool):
        raise SettingError(f"{where}.log", expected="true or false", got=log)
    for key in ("low", "high"):
        value: Any = node.get(key)
        if not is_number(value) or not math.isfinite(value):
            raise SettingError(f"{where}.{key}", expected="a number", got=value)
        if log and value <= 0:
            fix = "log: false draws evenly instead"
            raise SettingError(f"{where}.{key}", expected="above 0", got=value, fix=fix)
    if not node["low"] < node["high"]:
        raise SettingError(
            f"{where}.high", expected=f"more than low={node['low']}", got=node["high"]
        )
    return Range(node["low"], node["high"], log)
