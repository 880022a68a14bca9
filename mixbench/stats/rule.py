"""The rule of a verdict on differences of paired seeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mixbench.stats.permutation import ROUNDING
from mixbench.stats.summaries import Array

ALPHA = 0.05
"""The adjusted p that `beats` allows."""


IMPROVEMENT = 0.75
"""The probability of improvement that `beats` asks for."""


SATURATED_SHARE = 0.8
"""Share of seeds with both arms at the ceiling from which a comparison is saturated."""


BEATS, NOT_BEATEN = "beats", "not beaten"


INCONCLUSIVE, SATURATED = "inconclusive", "saturated"


EQUIVALENT, WORSE = "equivalent", "worse"


def outcome_of(
    mean: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    improvement: ArrayLike,
    significant: ArrayLike,
    margin: float,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether the baseline is beaten, and whether it is not, element by element."""
    beats = (
        np.asarray(significant)
        & np.greater(low, 0)
        & np.greater_equal(mean, margin)
        & np.greater_equal(improvement, IMPROVEMENT)
    )
    return np.asarray(beats), np.asarray(np.less(high, margin))


def is_saturated(
    idea: Array, baseline: Array, ceiling: float, margin: float, higher_is_better: bool
) -> bool:
    sign = 1 if higher_is_better else -1
    slack = ROUNDING * max(abs(ceiling), margin)
    at_ceiling = [sign * (ceiling - scores) <= margin + slack for scores in (idea, baseline)]
    return bool((at_ceiling[0] & at_ceiling[1]).mean() >= SATURATED_SHARE)


def within_margin(d: Array, margin: float) -> float:
    """The margin less rounding, so that a difference of exactly the margin reaches it."""
    return margin - ROUNDING * max(margin, float(np.abs(d).max()))
