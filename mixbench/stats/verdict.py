"""A comparison's verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from mixbench.stats.power import seeds_for_power
from mixbench.stats.rule import (
    ALPHA,
    BEATS,
    EQUIVALENT,
    INCONCLUSIVE,
    NOT_BEATEN,
    SATURATED,
    WORSE,
    is_saturated,
    outcome_of,
    within_margin,
)
from mixbench.stats.summaries import (
    Interval,
    check_margin,
    checked_samples,
    moments,
    probability_of_improvement,
    t_interval,
)


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
    d = checked_samples("differences", differences)
    idea = checked_samples("idea_scores", idea_scores)
    baseline = checked_samples("baseline_scores", baseline_scores)
    if not len(d) == len(idea) == len(baseline):
        raise ValueError(
            "verdict: expected as many differences as scores of either arm, got "
            f"{len(d)}, {len(idea)} and {len(baseline)}"
        )
    check_margin(margin)
    if not 0 <= p_adjusted <= 1:
        raise ValueError(f"p_adjusted: expected a number within [0, 1], got {p_adjusted}")
    if ceiling is not None and not math.isfinite(ceiling):
        raise ValueError(f"ceiling: expected a finite number or None, got {ceiling}")

    mean, _ = moments(d)
    interval = t_interval(d)
    improvement = probability_of_improvement(d)
    within = within_margin(d, margin)
    significant = p_adjusted <= ALPHA
    beats, not_beaten = outcome_of(
        mean, interval.low, interval.high, improvement, significant, within
    )
    qualifiers: tuple[str, ...] = ()
    seeds_needed = None
    if beats:
        outcome = BEATS
    elif ceiling is not None and is_saturated(idea, baseline, ceiling, margin, higher_is_better):
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
