"""The statistics of a comparison, as pure functions on plain arrays. Never imports torch.

`n` is the number of paired seeds. A difference is idea minus baseline at one seed, turned so that
positive is better. Of scipy only `scipy.special` is used: `scipy.stats` takes most of a second to
import.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # type: ignore[import-untyped]

LEVEL = 0.95
"""Confidence of the interval a verdict looks at."""
ALPHA = 0.05
"""The adjusted p that `beats` allows."""
IMPROVEMENT = 0.75
"""The probability of improvement that `beats` asks for."""
SATURATED_SHARE = 0.8
"""Share of seeds with both arms at the ceiling from which a comparison is saturated."""
EXACT_FLIPS = 30
"""Up to this many differences `sign_flip_p` is exact."""
FLIP_DRAWS = 19_999
"""Random flips `sign_flip_p` draws beyond that: p is a multiple of 1/20,000."""
STATE_BITS = 32
"""Bits that a number of a mixer's state counts for."""
MAX_SEEDS = 256
"""More seeds than this `seeds_for_power` does not ask for."""

BEATS, NOT_BEATEN = "beats", "not beaten"
INCONCLUSIVE, SATURATED = "inconclusive", "saturated"
EQUIVALENT, WORSE = "equivalent", "worse"

_ROUNDING = 1e-9
"""Relative size below which a difference of two sums is taken for rounding, that is for a tie."""
_FLIP_SEED = 20_240_229
_PREDICTION_SEED = 8_191
_PREDICTIONS = 1_000

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """A two-sided confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """What one comparison says, with the numbers it rests on.

    Attributes:
        outcome: `beats`, `not beaten`, `inconclusive` or `saturated`.
        qualifiers: Of a baseline not beaten: `equivalent`, `worse`, both or neither.
        d: Mean difference, positive is better.
        interval: Its 95 % t interval.
        probability_of_improvement: Share of seeds at which the idea is better, ties half.
        seeds_needed: Of an inconclusive comparison, the seeds it takes in all, those at hand
            included (`seeds_for_power`); None if more than `MAX_SEEDS`, or if it was not asked for.
    """

    outcome: str
    qualifiers: tuple[str, ...]
    d: float
    interval: Interval
    probability_of_improvement: float
    seeds_needed: int | None


def t_interval(values: ArrayLike, level: float = LEVEL) -> Interval:
    """Student's t interval of the mean of `values [n]`.

    `mean +- t(n - 1, (1 + level) / 2) sd / sqrt(n)`, sd with n - 1. A single value gives infinite
    ends, equal values an interval of no width.

    Raises:
        ValueError: `values` is empty or not finite, or `level` is not within (0, 1).
    """
    x = _checked("values", values)
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number within (0, 1), got {level}")
    if len(x) == 1:
        return Interval(-math.inf, math.inf)
    mean, sd = _moments(x)
    half = float(special.stdtrit(len(x) - 1, (1 + level) / 2)) * sd / math.sqrt(len(x))
    return Interval(mean - half, mean + half)


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
    d = _checked("differences", differences)
    # Flipping the signs of a subset takes twice the subset's sum from the total, so the flips
    # that reach the observed total are the subsets whose sum is at most 0.
    tie = _ROUNDING * float(np.abs(d).sum())
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
    p = _checked("p_values", p_values)
    if p.min() < 0 or p.max() > 1:
        raise ValueError(f"p_values: expected numbers within [0, 1], got {p.tolist()}")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1.0)


def probability_of_improvement(differences: ArrayLike) -> float:
    """Share of `differences [n]` that are positive, plus half the share that are 0.

    Raises:
        ValueError: `differences` is empty or not finite.
    """
    d = _checked("differences", differences)
    return float(((d > 0) + 0.5 * (d == 0)).mean())


def interquartile_mean(values: ArrayLike) -> float:
    """Mean of the middle half of `values [n]`: `floor(n / 4)` left out at each end.

    As rliable takes it (Agarwal et al. 2021, arXiv 2108.13264): `scipy.stats.trim_mean(x, 0.25)`.

    Raises:
        ValueError: `values` is empty or not finite.
    """
    x = np.sort(_checked("values", values))
    cut = len(x) // 4
    return float(x[cut : len(x) - cut].mean())


def effect_size(differences: ArrayLike) -> float:
    """Paired effect size of `differences [n]`: Cohen's `d_z = mean / sd`, sd with n - 1.

    Equal differences have no spread: +-inf by their sign, 0 if they are 0. A single difference
    has no effect size: nan.

    Raises:
        ValueError: `differences` is empty or not finite.
    """
    d = _checked("differences", differences)
    if len(d) == 1:
        return math.nan
    mean, sd = _moments(d)
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
    v = np.sort(_checked("scores", scores, lost=True))
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
    d = _checked("differences", differences)
    _check_margin(margin)
    if not 0 < power < 1:
        raise ValueError(f"power: expected a number within (0, 1), got {power}")
    if comparisons < 1:
        raise ValueError(f"comparisons: expected 1 or more, got {comparisons}")
    n = len(d)
    if n == 1 or n >= MAX_SEEDS:
        return None
    mean, sd = _moments(d)
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
    beats, not_beaten = _rule(
        means, means - half, means + half, improvement, significant, _within(d, margin)
    )
    reached = np.flatnonzero((beats | not_beaten).mean(axis=0) >= power)
    return int(total[reached[0]]) if len(reached) else None


def verdict(
    differences: ArrayLike,
    margin: float,
    p_adjusted: float,
    idea_scores: ArrayLike,
    baseline_scores: ArrayLike,
    ceiling: float | None,
    higher_is_better: bool,
    *,
    comparisons: int = 1,
    power: float | None = 0.8,
) -> Verdict:
    """The verdict of one comparison, by the first of these that holds (d: mean difference):

    1. **beats**: `p_adjusted` <= 0.05, lower bound > 0, d >= margin and probability of
       improvement >= 0.75.
    2. **saturated**: both arms at the ceiling in at least 80 % of the seeds. A score is at the
       ceiling when it is within one margin of the best possible one: no improvement by the margin
       is possible there.
    3. **not beaten**: upper bound < margin. Also *equivalent* when the lower bound is above
       -margin, *worse* when the upper bound is below 0.
    4. **inconclusive**, with the seeds that would be needed.

    `beats` comes before `saturated` for a baseline that is at the ceiling but for a fifth of the
    seeds, at which it collapses and the idea does not. Numbers closer than rounding (1e-9,
    relative) count as equal.

    Args:
        differences: `[n]`, positive is better.
        margin: The smallest improvement that matters, in the unit of the score, 0 or more.
        p_adjusted: The `sign_flip_p` of the differences after `holm` over the study.
        idea_scores: `[n]`, the idea's scores at the same seeds.
        baseline_scores: `[n]`, the baseline's.
        ceiling: The best possible score; None where there is none (then never saturated).
        higher_is_better: Whether the ceiling is a maximum (accuracy) or a minimum (error).
        comparisons: Comparisons that `holm` went over, for the seeds needed.
        power: Probability of a verdict that the seeds needed should give; None to leave them out.

    Raises:
        ValueError: Something is empty or not finite, lengths differ, `margin` is negative, or
            `p_adjusted` is not within [0, 1].
    """
    d = _checked("differences", differences)
    idea = _checked("idea_scores", idea_scores)
    baseline = _checked("baseline_scores", baseline_scores)
    if not len(d) == len(idea) == len(baseline):
        raise ValueError(
            "verdict: expected as many differences as scores of either arm, got "
            f"{len(d)}, {len(idea)} and {len(baseline)}"
        )
    _check_margin(margin)
    if not 0 <= p_adjusted <= 1:
        raise ValueError(f"p_adjusted: expected a number within [0, 1], got {p_adjusted}")
    if ceiling is not None and not math.isfinite(ceiling):
        raise ValueError(f"ceiling: expected a finite number or None, got {ceiling}")

    mean, _ = _moments(d)
    interval = t_interval(d)
    improvement = probability_of_improvement(d)
    within = _within(d, margin)
    significant = p_adjusted <= ALPHA
    beats, not_beaten = _rule(mean, interval.low, interval.high, improvement, significant, within)
    qualifiers: tuple[str, ...] = ()
    seeds_needed = None
    if beats:
        outcome = BEATS
    elif ceiling is not None and _saturated(idea, baseline, ceiling, margin, higher_is_better):
        outcome = SATURATED
    elif not_beaten:
        outcome = NOT_BEATEN
        holds = {EQUIVALENT: interval.low > -within, WORSE: interval.high < 0}
        qualifiers = tuple(name for name, true in holds.items() if true)
    else:
        outcome = INCONCLUSIVE
        if power is not None:
            seeds_needed = seeds_for_power(d, margin, power, comparisons=comparisons)
    return Verdict(outcome, qualifiers, mean, interval, improvement, seeds_needed)


def _rule(
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


def _saturated(
    idea: Array, baseline: Array, ceiling: float, margin: float, higher_is_better: bool
) -> bool:
    sign = 1 if higher_is_better else -1
    slack = _ROUNDING * max(abs(ceiling), margin)
    at_ceiling = [sign * (ceiling - scores) <= margin + slack for scores in (idea, baseline)]
    return bool((at_ceiling[0] & at_ceiling[1]).mean() >= SATURATED_SHARE)


def _within(d: Array, margin: float) -> float:
    """The margin less rounding, so that a difference of exactly the margin reaches it."""
    return margin - _ROUNDING * max(margin, float(np.abs(d).max()))


def _moments(x: Array) -> tuple[float, float]:
    """Mean and sd (n - 1; 0 for a single value), free of rounding where all values are equal."""
    if x.min() == x.max():
        return float(x[0]), 0.0
    return float(x.mean()), float(x.std(ddof=1))


def _subset_sums(d: Array) -> Array:
    """The sums of all subsets of `d [n]`: `[2^n]`."""
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate((sums, sums + value))
    return sums


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


def _checked(name: str, values: ArrayLike, lost: bool = False) -> Array:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"{name}: expected a list of at least one number, got shape {x.shape}")
    if not (np.isfinite(x) | (lost & (x == -np.inf))).all():
        kind = "finite numbers (or -inf for a lost one)" if lost else "finite numbers"
        raise ValueError(f"{name}: expected {kind}, got {x.tolist()}")
    return x


def _check_margin(margin: float) -> None:
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin: expected a finite number, 0 or more, got {margin}")
