"""A study's headline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mixbench.compare.studies import StudyRuns
from mixbench.config.comparison_schema import FIRST_EVALUATION_SEED
from mixbench.core.numbers import interval, signed
from mixbench.stats.power import MAX_SEEDS


def study_headline(study: StudyRuns, task: Mapping[str, Any], idea: str) -> dict[str, Any]:
    """The verdict on an idea: its mechanism, and the comparison with the strongest baseline."""
    baseline = task["strongest_baseline"]
    (comparison,) = [
        each
        for each in task["comparisons"]
        if each["idea"] == idea and each["baseline"] == baseline
    ]
    (arm,) = [each for each in task["arms"] if each["name"] == idea]
    signature = arm["signature"]
    mechanism = f"mechanism {signature['outcome']}"
    if 0 < signature["models"] < len(arm["evaluation"]):
        mechanism += f" on {signature['models']} of {len(arm['evaluation'])} models"
    if signature["failing"]:
        mechanism += f" ({', '.join(signature['failing'])})"
    outcome = {
        "beats": "beats tuned baseline",
        "not beaten": "baseline not beaten",
        "inconclusive": "inconclusive",
        "saturated": "saturated",
        "incomplete": "no verdict",
    }[comparison["outcome"]]
    outcome = ", ".join([outcome, *comparison["qualifiers"]])
    count = len(comparison["pairs"])
    if comparison["outcome"] == "incomplete":
        detail = f"{len(comparison['gaps'])} runs missing or failed"
        if not comparison["gaps"]:
            detail = "nothing has been evaluated"
    else:
        detail = (
            f"d = {signed(comparison['d'])}, 95 % CI {interval(comparison['interval'])}, "
            f"p = {comparison['p_adjusted']:.3g}, {count} seeds"
        )
    for name, lost in comparison["diverged"].items():
        if lost:
            detail += f"; {name} diverged at {lost}"
    if comparison["outcome"] == "inconclusive":
        detail += _advice(study, comparison)
    place = f" on {task['name']}" if len(study.tasks) > 1 else ""
    summary = f"{idea} vs {baseline}{place}: {mechanism}, {outcome}"
    return {
        "idea": idea,
        "baseline": baseline,
        "mechanism": signature["outcome"],
        "outcome": comparison["outcome"],
        "headline": f"{summary} ({detail})",
        "summary": summary,
        "detail": detail,
    }


def _advice(study: StudyRuns, comparison: Mapping[str, Any]) -> str:
    """How many more seeds a verdict would take."""
    needed, seeds = comparison["seeds_needed"], [pair["seed"] for pair in comparison["pairs"]]
    if comparison["diverged"][comparison["idea"]]:
        return "; an arm with diverged runs cannot win"
    if len(seeds) < 2:
        return "; cannot estimate variance from one seed"
    if needed is None:
        return f"; a verdict would take more than {MAX_SEEDS} seeds"
    counted = seeds == list(range(FIRST_EVALUATION_SEED, FIRST_EVALUATION_SEED + len(seeds)))
    how = f": sweep.eval_seeds={needed}" if study.planned and counted else ""
    return f"; {needed - len(seeds)} more seeds for a verdict{how}"
