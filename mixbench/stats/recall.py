"""What a state of so many numbers can recall, by Fano's inequality."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special  # type: ignore[import-untyped]

from mixbench.stats.summaries import Array

STATE_BITS = 32
"""Bits that a number of a mixer's state counts for."""


def bits_to_recall(pairs: int, values: int) -> float:
    """Bits that a state needs at least to answer all of K random pairs.

    `sum_{i < K} log2(W - i)`, which is what it takes where no value comes twice; independent values
    take `recalled_bits(K, W, 0)`, a little more.

    Args:
        pairs: K.
        values: W, the values that there are to choose from; half the vocabulary.

    Raises:
        ValueError: There is no pair, or there are fewer values than pairs.
    """
    if not 1 <= pairs <= values:
        raise ValueError(f"pairs: expected 1 to {values}, the number of values, got {pairs}")
    return sum(math.log2(values - i) for i in range(pairs))


def recalled_bits(pairs: int, values: int, error: ArrayLike) -> Array:
    """Bits about K random pairs that a state holds at least if it answers with this error.

    `K (log2 W - h2(e) - e log2(W - 1))` by Fano's inequality, `h2` the binary entropy; 0 from
    chance, `e = 1 - 1 / W`, on.

    Args:
        pairs: K.
        values: W, the values that there are to choose from, each pair's drawn independently.
        error: Share of the queries that are answered wrongly, any shape.

    Raises:
        ValueError: There is no pair, there are fewer than two values, or an error is outside
            [0, 1].
    """
    e = np.asarray(error, dtype=np.float64)
    if pairs < 1 or values < 2:
        raise ValueError(f"expected at least one pair and two values, got {pairs} and {values}")
    if not ((e >= 0) & (e <= 1)).all():
        raise ValueError(f"error: expected shares within [0, 1], got {e.tolist()}")
    entropy = (special.entr(e) + special.entr(1 - e)) / math.log(2)
    bits = math.log2(values) - entropy - e * math.log2(values - 1)
    known = pairs * np.where(e < 1 - 1 / values, np.maximum(bits, 0.0), 0.0)
    return np.asarray(known)
