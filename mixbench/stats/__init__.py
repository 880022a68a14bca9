"""Statistics of paired comparisons: arrays in, arrays out; every formula cited."""

from mixbench.stats.permutation import EXACT_FLIPS, FLIP_DRAWS, holm, sign_flip_p
from mixbench.stats.power import MAX_SEEDS, seeds_for_power
from mixbench.stats.recall import STATE_BITS, bits_to_recall, recalled_bits
from mixbench.stats.rule import (
    ALPHA,
    BEATS,
    EQUIVALENT,
    IMPROVEMENT,
    INCONCLUSIVE,
    NOT_BEATEN,
    SATURATED,
    SATURATED_SHARE,
    WORSE,
)
from mixbench.stats.summaries import (
    LEVEL,
    Array,
    Interval,
    effect_size,
    expected_best,
    interquartile_mean,
    probability_of_improvement,
    t_interval,
)
from mixbench.stats.verdict import Verdict, verdict

__all__ = [
    "ALPHA",
    "BEATS",
    "EQUIVALENT",
    "EXACT_FLIPS",
    "FLIP_DRAWS",
    "IMPROVEMENT",
    "INCONCLUSIVE",
    "LEVEL",
    "MAX_SEEDS",
    "NOT_BEATEN",
    "SATURATED",
    "SATURATED_SHARE",
    "STATE_BITS",
    "WORSE",
    "Array",
    "Interval",
    "Verdict",
    "bits_to_recall",
    "effect_size",
    "expected_best",
    "holm",
    "interquartile_mean",
    "probability_of_improvement",
    "recalled_bits",
    "seeds_for_power",
    "sign_flip_p",
    "t_interval",
    "verdict",
]
