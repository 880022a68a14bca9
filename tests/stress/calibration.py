"""How often the verdicts are wrong, measured: whole studies simulated through `mixbench.stats`.

    python -m tests.stress.calibration [--studies 2000]

Every study has 8 paired seeds, and margins and effects are in sds of the difference. The streams
are fixed, so the rates are the same at every call.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from mixbench import stats
from mixbench.core.seeds import stream
from mixbench.stats.verdict import Verdict

SEEDS = 8


Array = NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """A distribution of an arm's scores: how to draw it, its sd, its best possible score."""

    draw: Callable[[np.random.Generator, tuple[int, ...]], Array]
    sd: float = 1.0
    ceiling: float | None = None


QUERIES, RECALL = 4_000, 0.998


SHAPES = {
    "normal": Shape(lambda rng, size: rng.standard_normal(size)),
    "t(3)": Shape(lambda rng, size: rng.standard_t(3, size) / 3**0.5),
    "exponential": Shape(lambda rng, size: rng.exponential(size=size) - 1),
    "accuracy": Shape(
        lambda rng, size: rng.binomial(QUERIES, RECALL, size) / QUERIES,
        sd=(RECALL * (1 - RECALL) / QUERIES) ** 0.5,
        ceiling=1.0,
    ),
}
"""Mean 0 and sd 1, but for `accuracy`: multiples of 1/4000 around 0.998."""


@dataclass(frozen=True)
class Rate:
    """A measured rate.

    Attributes:
        check: What is measured.
        case: Under which circumstances.
        rate: The share of `of` studies.
        of: How many studies it is a share of.
        bounds: What it has to lie within, ends included; None where it is only told.
        note: What else there is to say.
    """

    check: str
    case: str
    rate: float
    of: int
    bounds: tuple[float, float] | None = None
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.bounds is None or self.bounds[0] <= self.rate <= self.bounds[1]


def null_rates(studies: int = 2_000) -> list[Rate]:
    """How often `beats` comes out for two identical arms.

    Differences of identical arms are symmetric whatever the shape of the scores. The last two
    cases are not identical arms but differences of mean 0 that are skewed, which the sign-flip
    test does not cover; they are told, not required.
    """
    rates = []
    for name, shape in SHAPES.items():
        for margin in (0.0, 0.5):
            rng = stream(0, "calibration", "null", name, str(margin))
            idea, baseline = shape.draw(rng, (2, studies, SEEDS))
            width = margin * shape.sd * 2**0.5
            beats = [
                _compare(*pair, width, shape.ceiling).outcome == stats.BEATS
                for pair in zip(idea, baseline, strict=True)
            ]
            rates.append(_rate("identical arms: beats", f"{name}, margin {margin}", beats, 0, 0.05))
    for name, sign in (("right", 1), ("left", -1)):
        rng = stream(0, "calibration", "skewed", name)
        differences = sign * SHAPES["exponential"].draw(rng, (studies, SEEDS))
        beats = [_compare(d, 0 * d, 0.0).outcome == stats.BEATS for d in differences]
        case = f"differences skewed to the {name}, margin 0"
        rates.append(_rate("mean 0, not identical: beats", case, beats))
    return rates


def family_rates(studies: int = 2_000, tasks: int = 5, baselines: int = 2) -> list[Rate]:
    """Studies of several tasks and baselines under Holm.

    How often any comparison says `beats` when all arms are identical, and how often the one real
    effect (2 sds) among them does.
    """
    m = tasks * baselines
    rng = stream(0, "calibration", "family")
    arms = rng.standard_normal((studies, tasks, 1 + baselines, SEEDS))
    # [studies, m, seeds]; a task's comparisons share the idea's scores.
    differences = (arms[:, :, :1] - arms[:, :, 1:]).reshape(studies, m, SEEDS)
    any_beats, real_beats = [], []
    for study in differences:
        outcomes = _outcomes(study, margin=0.0)
        any_beats.append(stats.BEATS in outcomes)
        study[0] += 2 * 2**0.5
        real_beats.append(_outcomes(study, margin=0.0)[0] == stats.BEATS)
    case = f"{tasks} tasks, {baselines} baselines, normal, margin 0"
    return [
        _rate("identical arms: any beats", case, any_beats, 0, 0.05),
        _rate(f"one effect of 2 among {m}: beats", case, real_beats),
    ]


def power_rates(studies: int = 2_000, effect: float = 2.0) -> list[Rate]:
    """How often an effect well above the margin comes out as `beats`."""
    rates = []
    for name in ("normal", "t(3)", "exponential"):
        rng = stream(0, "calibration", "power", name)
        differences = effect + SHAPES[name].draw(rng, (studies, SEEDS))
        beats = [_compare(d, 0 * d, 0.5).outcome == stats.BEATS for d in differences]
        case = f"{name} differences, margin 0.5"
        bounds = (0.8, 1.0) if name == "normal" else ()
        rates.append(_rate(f"effect {effect:g}: beats", case, beats, *bounds))
    return rates


def coverage_rates(studies: int = 2_000) -> list[Rate]:
    """How often the 95 % t interval holds the true mean."""
    rates = []
    for name, shape in SHAPES.items():
        mean = RECALL if name == "accuracy" else 0.0
        samples = shape.draw(stream(0, "calibration", "coverage", name), (studies, SEEDS))
        intervals = [stats.t_interval(sample) for sample in samples]
        covered = [low <= mean <= high for low, high in intervals]
        bounds = (0.93, 0.97) if name == "normal" else ()
        rates.append(_rate("95 % interval: covers", f"{name} scores", covered, *bounds))
    return rates


def follow_up_rates(studies: int = 2_000, name: str = "normal") -> list[Rate]:
    """Inconclusive studies, run again with the seeds they asked for: is there a verdict then?

    Effects are uniform in [-1.5, 1.5], margins in [0.2, 1]; the old seeds are kept and the new
    ones added. Studies told `more than MAX_SEEDS` are not part of the required rate. They are
    counted, and run with `MAX_SEEDS` to see what that would have given.
    """
    rng = stream(0, "calibration", "follow-up", name)
    draw = SHAPES[name].draw
    totals: list[int] = []
    reached: list[bool] = []
    reached_at_most: list[bool] = []
    for _ in range(studies):
        effect, margin = rng.uniform(-1.5, 1.5), rng.uniform(0.2, 1.0)
        d = effect + draw(rng, (SEEDS,))
        first = _compare(d, 0 * d, margin, power=0.8)
        if first.outcome != stats.INCONCLUSIVE:
            continue
        total = first.seeds_needed
        added = draw(rng, ((total or stats.MAX_SEEDS) - SEEDS,))
        again = np.concatenate((d, effect + added))
        conclusive = _compare(again, 0 * again, margin).outcome != stats.INCONCLUSIVE
        if total is None:
            reached_at_most.append(conclusive)
        else:
            totals.append(total)
            reached.append(conclusive)
    told_more = [False] * len(reached) + [True] * len(reached_at_most)
    quantiles = np.quantile(totals, [0.5, 0.9])
    bounds = (0.75, 1.0) if name == "normal" else ()
    case = f"{name} differences"
    most = f"more than {stats.MAX_SEEDS}"
    return [
        _rate(
            "run again as asked: verdict",
            case,
            reached,
            *bounds,
            note="seeds in all: median {:.0f}, 90 % quantile {:.0f}".format(*quantiles),
        ),
        _rate(f"inconclusive: told {most}", case, told_more),
        _rate(f"told {most}, run with {stats.MAX_SEEDS}: verdict", case, reached_at_most),
        _rate(f"run as asked or with {stats.MAX_SEEDS}: verdict", case, reached + reached_at_most),
    ]


def second_look_rates(studies: int = 500) -> list[Rate]:
    """How often identical arms come to `beats` when every inconclusive study is run again."""
    rates = []
    for margin in (0.0, 0.5):
        rng = stream(0, "calibration", "second-look", str(margin))
        beats = []
        for d in rng.standard_normal((studies, SEEDS)):
            result = _compare(d, 0 * d, margin, power=0.8)
            if result.seeds_needed is not None:
                again = np.concatenate((d, rng.standard_normal(result.seeds_needed - SEEDS)))
                result = _compare(again, 0 * again, margin)
            beats.append(result.outcome == stats.BEATS)
        case = f"normal differences, margin {margin}"
        rates.append(_rate("identical arms, run again as asked: beats", case, beats, 0, 0.05))
    return rates


def calibrate(studies: int = 2_000) -> list[Rate]:
    """All rates, each of `studies` simulated studies, fewer where they are told for comparison.

    Raises:
        ValueError: `studies` is less than 100, too few for any rate.
    """
    if studies < 100:
        raise ValueError(f"studies: expected 100 or more, got {studies}")
    return [
        *null_rates(studies),
        *family_rates(studies),
        *second_look_rates(studies // 4),
        *power_rates(studies),
        *coverage_rates(studies),
        *follow_up_rates(studies),
        *follow_up_rates(studies // 2, "t(3)"),
    ]


def rates_table(rates: list[Rate]) -> Table:
    """The rates as a table; what is required and does not hold is named."""
    table = Table(title="Calibration of the verdicts", title_justify="left")
    for heading in ("check", "case", "rate", "of", "required", "note"):
        table.add_column(heading, justify="right" if heading in ("rate", "of") else "left")
    for rate in rates:
        required = ""
        if rate.bounds is not None:
            required = "{:.0%} to {:.0%}".format(*rate.bounds)
            required += "" if rate.holds else ", does not hold"
        table.add_row(
            rate.check, rate.case, f"{rate.rate:.1%}", f"{rate.of:,}", required, rate.note
        )
    return table


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the exit code is 1 if a required rate does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress.calibration", description=__doc__)
    parser.add_argument("--studies", type=int, default=2_000, help="simulated studies a rate")
    try:
        rates = calibrate(parser.parse_args(arguments).studies)
    except ValueError as error:
        parser.error(str(error))
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(rates_table(rates))
    return 0 if all(rate.holds for rate in rates) else 1


def _compare(
    idea: Array,
    baseline: Array,
    margin: float,
    ceiling: float | None = None,
    power: float | None = None,
) -> Verdict:
    """A study of one comparison; the seeds needed take most of the time, so only on demand."""
    d = idea - baseline
    p = float(stats.holm([stats.sign_flip_p(d)])[0])
    return stats.verdict(d, margin, p, idea, baseline, ceiling, True, power=power)


def _outcomes(study: Array, margin: float) -> list[str]:
    """The outcomes of a study's comparisons `[m, seeds]`, Holm over all of them."""
    adjusted = stats.holm([stats.sign_flip_p(d) for d in study])
    return [
        stats.verdict(d, margin, float(p), d, 0 * d, None, True, power=None).outcome
        for d, p in zip(study, adjusted, strict=True)
    ]


def _rate(check: str, case: str, hits: list[bool], *bounds: float, note: str = "") -> Rate:
    limits = (bounds[0], bounds[1]) if bounds else None
    return Rate(check, case, float(np.mean(hits)), len(hits), limits, note)
