"""How many seeds a comparison would need."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # type: ignore[import-untyped]

from mixbench.stats.rule import ALPHA, outcome_of, within_margin
from mixbench.stats.summaries import (
    LEVEL,
    Array,
    check_margin,
    checked_samples,
    moments,
    probability_of_improvement,
)

MAX_SEEDS = 256
"""More seeds than this `seeds_for_power` does not ask for."""


_PREDICTION_SEED = 8_191


_PREDICTIONS = 1_000


def seeds_for_power(
    differences: ArrayLike, margin: float, power: float = 0.8, *, comparisons: int = 1
) -> int | None:
    """How many seeds in all would bring an inconclusive comparison to a verdict, either one.

    The smallest total N at which the predictive probability of `beats` or `not beaten` is at
    least `power`, given the n `differences` at hand, which are kept (Bayesian predictive power;
    Spiegelhalter, Freedman and Blackburn 1986). The mean and sd of 8 seeds are noisy, so they are
    not taken at their word but drawn from their posterior under the reference prior
    `p(mu, sigma) ~ 1 / sigma`:

        sigma^2 = (n - 1) sd^2 / chi^2(n - 1),    mu = mean + sigma / sqrt(n) z,

    then N - n new differences from N(mu, sigma^2), and the rule of `verdict` is applied to all N,
    with `comparisons` times the t test's p in place of the adjusted sign-flip p (and that at least
    `comparisons / 2^N`). This is repeated 1,000 times from a fixed seed. N runs through every
    number up to about 2n and then in steps of a few per cent.

    Returns:
        The total, more than n. None if it is more than `MAX_SEEDS`, which is the answer where the
        mean lies so near to the margin that no verdict can be expected, or above it with a
        probability of improvement that stays below 0.75; None also for a single difference, which
        tells nothing of the spread.

    Raises:
        ValueError: `differences` is empty or not finite, `margin` is negative or not finite,
            `power` is not within (0, 1), or `comparisons` is less than 1.
    """
    d = checked_samples("differences", differences)
    check_margin(margin)
    if not 0 < power < 1:
        raise ValueError(f"power: expected a number within (0, 1), got {power}")
    if comparisons < 1:
        raise ValueError(f"comparisons: expected 1 or more, got {comparisons}")
    n = len(d)
    if n == 1 or n >= MAX_SEEDS:
        return None
    mean, sd = moments(d)
    z, z_sums, z_squares, added = _future(n)
    rng = np.random.default_rng(_PREDICTION_SEED)
    sigma = sd * np.sqrt((n - 1) / rng.chisquare(n - 1, _PREDICTIONS))[:, None]
    mu = mean + sigma / math.sqrt(n) * rng.standard_normal(_PREDICTIONS)[:, None]

    total = n + added
    shift = mu - mean  # sums of squares about the old mean lose no digits
    sums = added * shift + sigma * z_sums
    squares = (n - 1) * sd**2 + added * shift**2 + 2 * shift * sigma * z_sums + sigma**2 * z_squares
    means = mean + sums / total
    sds = np.sqrt(np.maximum(squares - sums**2 / total, 0) / (total - 1))
    starts = np.concatenate(([0], added[:-1]))
    better = np.cumsum(np.add.reduceat(mu + sigma * z > 0, starts, axis=1, dtype=np.int64), axis=1)
    improvement = (n * probability_of_improvement(d) + better) / total
    errors = sds / np.sqrt(total)
    half = special.stdtrit(total - 1, (1 + LEVEL) / 2) * errors
    needed = special.stdtrit(total - 1, 1 - ALPHA / comparisons)
    significant = (means >= needed * errors) & (comparisons * 0.5**total <= ALPHA)
    beats, not_beaten = outcome_of(
        means, means - half, means + half, improvement, significant, within_margin(d, margin)
    )
    reached = np.flatnonzero((beats | not_beaten).mean(axis=0) >= power)
    return int(total[reached[0]]) if len(reached) else None


@lru_cache(maxsize=4)
def _future(n: int) -> tuple[Array, Array, Array, NDArray[np.int64]]:
    """Standard normal draws for seeds beyond the first `n`, the same at every call.

    Returns:
        The draws `[predictions, seeds]`, the sums of them and of their squares `[predictions, k]`
        over the numbers of added seeds `[k]` that are looked at, and those numbers.
    """
    most = MAX_SEEDS - n
    added = np.unique(np.geomspace(1, most, 80).round().astype(np.int64))
    z = np.random.default_rng((_PREDICTION_SEED, n)).standard_normal((_PREDICTIONS, most))
    return z, z.cumsum(axis=1)[:, added - 1], (z**2).cumsum(axis=1)[:, added - 1], added
