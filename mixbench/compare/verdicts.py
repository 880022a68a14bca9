"""What is said of a comparison in words: headlines, sentences, warnings. Never imports torch."""

from __future__ import annotations

from collections.abc import Sequence

from mixbench.compare.content import (
    ArmReport,
    Comparison,
    LostRun,
    Statistics,
    StudyReport,
    TaskReport,
    Verdict,
)
from mixbench.compare.studies import StudyRuns
from mixbench.config.comparison_schema import FIRST_EVALUATION_SEED
from mixbench.core.numbers import interval, signed
from mixbench.stats.power import MAX_SEEDS

_OUTCOMES = {
    "beats": "beats tuned baseline",
    "not beaten": "baseline not beaten",
    "inconclusive": "inconclusive",
    "saturated": "saturated",
    "incomplete": "no verdict",
}

_DIVERGED = "an arm with diverged runs cannot win"


def study_verdict(study: StudyRuns, task: TaskReport, idea: str) -> Verdict:
    """The verdict on an idea: its mechanism, and the comparison with the strongest baseline."""
    (comparison,) = [
        each
        for each in task.comparisons
        if (each.idea, each.baseline) == (idea, task.strongest_baseline)
    ]
    arm = task.arm(idea)
    place = f" on {task.name}" if len(study.tasks) > 1 else ""
    outcome = ", ".join([_OUTCOMES[comparison.outcome], *comparison.qualifiers])
    summary = f"{idea} vs {comparison.baseline}{place}: {_mechanism(arm)}, {outcome}"
    detail = _detail(study, comparison)
    return Verdict(
        idea=idea,
        baseline=comparison.baseline,
        mechanism=arm.signature.outcome,
        outcome=comparison.outcome,
        headline=f"{summary} ({detail})",
        summary=summary,
        detail=detail,
        sentences=[outcome_sentence(task, comparison), mechanism_sentence(arm)],
    )


def _mechanism(arm: ArmReport) -> str:
    """A headline's words on the mechanism."""
    signature = arm.signature
    said = f"mechanism {signature.outcome}"
    if 0 < signature.models < len(arm.evaluation):
        said += f" on {signature.models} of {len(arm.evaluation)} models"
    return f"{said} ({', '.join(signature.failing)})" if signature.failing else said


def _detail(study: StudyRuns, comparison: Comparison) -> str:
    """A headline's numbers."""
    found = comparison.statistics
    if found is not None:
        detail = (
            f"d = {signed(found.d)}, 95 % CI {interval(found.interval)}, "
            f"p = {found.p_adjusted:.3g}, {len(comparison.pairs)} seeds"
        )
    elif comparison.gaps:
        detail = f"{len(comparison.gaps)} runs missing or failed"
    else:
        detail = "nothing has been evaluated"
    for name, lost in comparison.diverged.items():
        if lost:
            detail += f"; {name} diverged at {lost}"
    if found is not None and comparison.outcome == "inconclusive":
        detail += f"; {_advice(study, comparison, found)}"
    return detail


def _advice(study: StudyRuns, comparison: Comparison, found: Statistics) -> str:
    """How many more seeds a verdict would take."""
    needed, seeds = found.seeds_needed, [pair.seed for pair in comparison.pairs]
    if comparison.diverged[comparison.idea]:
        return _DIVERGED
    if len(seeds) < 2:
        return "cannot estimate variance from one seed"
    if needed is None:
        return f"a verdict would take more than {MAX_SEEDS} seeds"
    counted = seeds == list(range(FIRST_EVALUATION_SEED, FIRST_EVALUATION_SEED + len(seeds)))
    how = f": sweep.eval_seeds={needed}" if study.planned and counted else ""
    return f"{needed - len(seeds)} more seeds for a verdict{how}"


def outcome_sentence(task: TaskReport, comparison: Comparison) -> str:
    """What a comparison came to, for someone who has not read the design."""
    idea, baseline = comparison.idea, comparison.baseline
    found = comparison.statistics
    if found is None:
        gaps = len(comparison.gaps)
        if not gaps:
            return f"{idea} and {baseline} have no runs on evaluation seeds yet."
        return (
            f"No verdict: {_are(gaps, 'run')} missing or failed. A seed that lacks a side is not "
            "dropped, for the seeds that fail may be the ones that matter."
        )
    seeds = _counted(len(comparison.pairs), "seed")
    better = sum(pair.difference > 0 for pair in comparison.pairs)
    mean = _mean_sentence(task, comparison, found)
    spread = _spread(found)
    matters = f"A difference of {task.margin:g} would matter."
    if comparison.outcome == "beats":
        return (
            f"{idea} beats {baseline}. {mean}{spread}. {matters} It is better at {better} of "
            f"{seeds}; chance alone would look like this with p = {found.p_adjusted:.2g}, "
            "corrected for all comparisons of the study."
        )
    if comparison.outcome == "saturated":
        return (
            f"The task cannot tell {idea} from {baseline}: both reach the best possible "
            f"{task.metric} of {task.ceiling:g}, to within the margin of {task.margin:g}, at "
            f"four seeds out of five or more. {mean}."
        )
    if comparison.outcome == "not beaten":
        lead = {
            (): f"{idea} does not beat {baseline}",
            ("equivalent",): f"{idea} is as good as {baseline}, and not better",
            ("worse",): f"{idea} is worse than {baseline}",
        }.get(tuple(comparison.qualifiers), f"{idea} is worse than {baseline}, but not by much")
        return f"{lead}. {mean}{spread}. {matters}"
    if comparison.diverged[idea]:
        lost = _counted(comparison.diverged[idea], "seed")
        return f"{idea} diverged at {lost}, and {_DIVERGED}. {mean}{spread}."
    return (
        f"Inconclusive: {idea} may or may not beat {baseline}. {mean}{spread}. {matters} "
        f"{_more_seeds(comparison, found)}"
    )


def _mean_sentence(task: TaskReport, comparison: Comparison, found: Statistics) -> str:
    return (
        f"The mean difference in test {task.metric} over "
        f"{_counted(len(comparison.pairs), 'seed')} is {signed(found.d)}, positive is better"
    )


def _spread(found: Statistics) -> str:
    low, high = found.interval
    if low is None:
        return ""
    return f"; its 95 % interval reaches from {signed(low)} to {signed(high)}"


def _more_seeds(comparison: Comparison, found: Statistics) -> str:
    if len(comparison.pairs) < 2:
        return "The variance cannot be estimated from one seed."
    if found.seeds_needed is None:
        return "No affordable number of seeds is expected to settle it."
    return f"About {found.seeds_needed} seeds in all would settle it."


def mechanism_sentence(arm: ArmReport) -> str:
    """Whether an arm's predictions about itself hold on its trained models."""
    signature = arm.signature
    models = _counted(signature.models, "trained model")
    if signature.outcome == "not evaluated":
        return f"No trained model of {arm.name} has been looked at."
    if signature.outcome == "not stated":
        return f"{arm.name} predicts nothing about its own mechanism."
    if signature.outcome == "confirmed":
        return (
            f"{_all(signature.of)} that {arm.name} makes about its own mechanism holds on "
            f"{'each of ' if signature.models > 1 else ''}{models}."
        )
    failing = "; ".join(
        f"“{name}” fails on {count} of {models}" for name, count in signature.failing.items()
    )
    return f"What {arm.name} claims about its own mechanism does not hold: {failing}."


def warnings(study: StudyReport) -> list[str]:
    """What a reader has to know before the numbers."""
    found = list(study.notes)
    if study.stage != "finished":
        found.append(f"unfinished: stopped in the stage {study.stage}")
    for task in study.tasks:
        for each in task.comparisons:
            seeds = sorted({gap.seed for gap in each.gaps})
            if seeds:
                found.append(
                    f"{task.name}, {each.idea} vs {each.baseline}: missing seeds "
                    f"{', '.join(map(str, seeds))}"
                )
        found += [f"{task.name}, {arm.name}: {_lost(arm.lost)}" for arm in task.arms if arm.lost]
    edges = [
        f"{arm.name}'s {' and '.join(arm.on_edge)} on {task.name}"
        for task in study.tasks
        for arm in task.arms
        if arm.on_edge
    ]
    if edges:
        found.append(
            "chosen at the edge of what was tried, so that a wider grid may find better: "
            + ", ".join(edges)
        )
    return found


def _lost(runs: Sequence[LostRun]) -> str:
    states = [run.status for run in runs]
    return ", ".join(
        f"{_counted(states.count(state), 'run')} {state}" for state in dict.fromkeys(states)
    )


def _all(count: int) -> str:
    return "The one prediction" if count == 1 else f"Each of the {count} predictions"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _are(count: int, noun: str) -> str:
    return f"{_counted(count, noun)} {'is' if count == 1 else 'are'}"
