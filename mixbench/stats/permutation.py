"""The exact sign-flip test and Holm's correction."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mixbench.stats.summaries import Array, checked_samples

EXACT_FLIPS = 30
"""Up to this many differences `sign_flip_p` is exact."""


FLIP_DRAWS = 19_999
"""Random flips `sign_flip_p` draws beyond that: p is a multiple of 1/20,000."""


ROUNDING = 1e-9
"""Relative size below which a difference of two sums is taken for rounding, that is for a tie."""


_FLIP_SEED = 20_240_229


def sign_flip_p(differences: ArrayLike) -> float:
    """One-sided sign-flip permutation p of the mean of `differences [n]` (H1: mean > 0).

    The share of all 2^n choices of signs whose sum is at least the observed one, the observed one
    and ties (to 1e-9 of the sum of absolute values) included; valid when the differences are
    symmetric about 0 under H0, as those of identical arms are (Fisher 1935). Exact up to
    `EXACT_FLIPS` differences. Beyond, from `FLIP_DRAWS` random choices with a fixed seed as
    `(count + 1) / (draws + 1)`, which keeps the level (Phipson and Smyth 2010, arXiv 1603.05766).

    Raises:
        ValueError: `differences` is empty or not finite.
    """
    d = checked_samples("differences", differences)
    # Flipping the signs of a subset takes twice the subset's sum from the total, so the flips
    # that reach the observed total are the subsets whose sum is at most 0.
    tie = ROUNDING * float(np.abs(d).sum())
    if len(d) <= EXACT_FLIPS:
        first = np.sort(_subset_sums(d[: len(d) // 2]))
        second = _subset_sums(d[len(d) // 2 :])
        return int(np.searchsorted(first, tie - second, side="right").sum()) / 2.0 ** len(d)
    rng = np.random.default_rng(_FLIP_SEED)
    width = -(-len(d) // 8)
    count = 0
    for start in range(0, FLIP_DRAWS, 2_000):  # bounded memory
        size = min(2_000, FLIP_DRAWS - start)
        packed = np.frombuffer(rng.bytes(size * width), np.uint8).reshape(size, width)
        flipped = np.unpackbits(packed, axis=1, count=len(d))
        count += int((flipped @ d <= tie).sum())
    return (count + 1) / (FLIP_DRAWS + 1)


def holm(p_values: ArrayLike) -> Array:
    """Holm's step-down adjustment of `p_values [m]`, in their order (Holm 1979).

    `p~_(k) = min(1, max_{j <= k} (m - j + 1) p_(j))` over the sorted p.

    Raises:
        ValueError: `p_values` is empty or holds something outside [0, 1].
    """
    p = checked_samples("p_values", p_values)
    if p.min() < 0 or p.max() > 1:
        raise ValueError(f"p_values: expected numbers within [0, 1], got {p.tolist()}")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1.0)


def _subset_sums(d: Array) -> Array:
    """The sums of all subsets of `d [n]`: `[2^n]`."""
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate((sums, sums + value))
    return sums
