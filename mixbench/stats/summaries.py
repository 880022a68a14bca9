"""Means, intervals and effect sizes of paired differences: arrays in, arrays out."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # type: ignore[import-untyped]

LEVEL = 0.95
"""Confidence of the interval a verdict looks at."""


Array = NDArray[np.float64]


class Interval(NamedTuple):
    """A two-sided confidence interval."""

    low: float
    high: float


def t_interval(values: ArrayLike, level: float = LEVEL) -> Interval:
    """Student's t interval of the mean of `values [n]`.

    `mean +- t(n - 1, (1 + level) / 2) sd / sqrt(n)`, sd with n - 1. A single value gives infinite
    ends, equal values an interval of no width.

    Raises:
        ValueError: `values` is empty or not finite, or `level` is not within (0, 1).
    """
    x = checked_samples("values", values)
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number within (0, 1), got {level}")
    if len(x) == 1:
        return Interval(-math.inf, math.inf)
    mean, sd = moments(x)
    half = float(special.stdtrit(len(x) - 1, (1 + level) / 2)) * sd / math.sqrt(len(x))
    return Interval(mean - half, mean + half)


def probability_of_improvement(differences: ArrayLike) -> float:
    """Share of `differences [n]` that are positive, plus half the share that are 0.

    Raises:
        ValueError: `differences` is empty or not finite.
    """
    d = checked_samples("differences", differences)
    return float(((d > 0) + 0.5 * (d == 0)).mean())


def interquartile_mean(values: ArrayLike) -> float:
    """Mean of the middle half of `values [n]`: `floor(n / 4)` left out at each end.

    As rliable takes it (Agarwal et al. 2021, arXiv 2108.13264): `scipy.stats.trim_mean(x, 0.25)`.

    Raises:
        ValueError: `values` is empty or not finite.
    """
    x = np.sort(checked_samples("values", values))
    cut = len(x) // 4
    return float(x[cut : len(x) - cut].mean())


def effect_size(differences: ArrayLike) -> float:
    """Paired effect size of `differences [n]`: Cohen's `d_z = mean / sd`, sd with n - 1.

    Equal differences have no spread: +-inf by their sign, 0 if they are 0. A single difference
    has no effect size: nan.

    Raises:
        ValueError: `differences` is empty or not finite.
    """
    d = checked_samples("differences", differences)
    if len(d) == 1:
        return math.nan
    mean, sd = moments(d)
    if sd == 0:
        return math.copysign(math.inf, mean) if mean else 0.0
    return mean / sd


def expected_best(scores: ArrayLike) -> Array:
    """Expected best score of n of the M trials, n = 1 ... M, drawn without replacement: `[M]`.

    `sum_{i >= n} v_(i) C(i - 1, n - 1) / C(M, n)` over `scores [M]` sorted ascending, higher is
    better (Dodge et al. 2019, arXiv 1909.03004, drawn without replacement). A lost trial scores
    -inf; the expectation is -inf for as long as all n may be lost ones.

    Raises:
        ValueError: `scores` is empty or holds NaN or +inf.
    """
    v = np.sort(checked_samples("scores", scores, lost=True))
    m = len(v)
    best = np.empty(m)
    for n in range(1, m + 1):
        if v[n - 1] == -math.inf:
            best[n - 1] = -math.inf
            continue
        # Weights from i = M down to n: n/M, then times (i - n)/(i - 1), which cannot overflow.
        i = np.arange(m, n, -1)
        weights = n / m * np.concatenate(([1.0], np.cumprod((i - n) / (i - 1))))
        best[n - 1] = weights @ v[n - 1 :][::-1]
    return best


def moments(x: Array) -> tuple[float, float]:
    """Mean and sd (n - 1; 0 for a single value), free of rounding where all values are equal."""
    if x.min() == x.max():
        return float(x[0]), 0.0
    return float(x.mean()), float(x.std(ddof=1))


def checked_samples(name: str, values: ArrayLike, lost: bool = False) -> Array:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"{name}: expected a list of at least one number, got shape {x.shape}")
    if not (np.isfinite(x) | (lost & (x == -np.inf))).all():
        kind = "finite numbers (or -inf for a lost one)" if lost else "finite numbers"
        raise ValueError(f"{name}: expected {kind}, got {x.tolist()}")
    return x


def check_margin(margin: float) -> None:
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin: expected a finite number, 0 or more, got {margin}")
