"""Verdicts in plain sentences, and what a reader has to know first. Never imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mixbench.core.numbers import signed


def outcome_sentence(task: Mapping[str, Any], comparison: Mapping[str, Any]) -> str:
    """What a comparison came to, for someone who has not read the design.

    Args:
        task: From `comparison.compare`.
        comparison: One of its comparisons.
    """
    idea, baseline = comparison["idea"], comparison["baseline"]
    seeds, outcome = len(comparison["pairs"]), comparison["outcome"]
    if outcome == "incomplete":
        gaps = len(comparison["gaps"])
        if not gaps:
            return f"{idea} and {baseline} have no runs on evaluation seeds yet."
        return (
            f"No verdict: {_are(gaps, 'run')} missing or failed. A seed that lacks a side is not "
            "dropped, for the seeds that fail may be the ones that matter."
        )
    margin = f"{task['margin']:g}"
    low, high = comparison["interval"]
    better = sum(pair["difference"] > 0 for pair in comparison["pairs"])
    found = (
        f"The mean difference in test {task['metric']} over {_counted(seeds, 'seed')} is "
        f"{signed(comparison['d'])}, positive is better"
    )
    spread = (
        "" if low is None else f"; its 95 % interval reaches from {signed(low)} to {signed(high)}"
    )
    if outcome == "beats":
        chance = f"p = {comparison['p_adjusted']:.2g}"
        return (
            f"{idea} beats {baseline}. {found}{spread}. A difference of {margin} would matter. It "
            f"is better at {better} of {_counted(seeds, 'seed')}; chance alone would look like "
            f"this with {chance}, corrected for all comparisons of the study."
        )
    if outcome == "saturated":
        return (
            f"The task cannot tell {idea} from {baseline}: both reach the best possible "
            f"{task['metric']} of {task['ceiling']:g}, to within the margin of {margin}, at "
            f"four seeds out of five or more. {found}."
        )
    if outcome == "not beaten":
        lead = {
            (): f"{idea} does not beat {baseline}",
            ("equivalent",): f"{idea} is as good as {baseline}, and not better",
            ("worse",): f"{idea} is worse than {baseline}",
        }.get(tuple(comparison["qualifiers"]), f"{idea} is worse than {baseline}, but not by much")
        return f"{lead}. {found}{spread}. A difference of {margin} would matter."
    if comparison["diverged"][idea]:
        why = f"{idea} diverged at {_counted(comparison['diverged'][idea], 'seed')}, "
        return f"{why}and an arm with diverged runs cannot win. {found}{spread}."
    needed = comparison["seeds_needed"]
    more = (
        "No affordable number of seeds is expected to settle it."
        if needed is None
        else f"About {needed} seeds in all would settle it."
    )
    if seeds < 2:
        more = "The variance cannot be estimated from one seed."
    return (
        f"Inconclusive: {idea} may or may not beat {baseline}. {found}{spread}. A difference of "
        f"{margin} would matter. {more}"
    )


def mechanism_sentence(arm: Mapping[str, Any]) -> str:
    """Whether an arm's predictions about itself hold on its trained models."""
    signature = arm["signature"]
    models = _counted(signature["models"], "trained model")
    if signature["outcome"] == "not evaluated":
        return f"No trained model of {arm['name']} has been looked at."
    if signature["outcome"] == "not stated":
        return f"{arm['name']} predicts nothing about its own mechanism."
    if signature["outcome"] == "confirmed":
        return (
            f"{_all(signature['of'])} that {arm['name']} makes about its own mechanism holds on "
            f"{'each of ' if signature['models'] > 1 else ''}{models}."
        )
    failing = "; ".join(
        f"“{name}” fails on {count} of {models}" for name, count in signature["failing"].items()
    )
    return f"What {arm['name']} claims about its own mechanism does not hold: {failing}."


def warnings(study: Mapping[str, Any]) -> list[str]:
    """What a reader has to know before the numbers; see `comparison.compare`."""
    found = list(study["notes"])
    if study["stage"] != "finished":
        found.append(f"unfinished: stopped in the stage {study['stage']}")
    for task in study["tasks"]:
        for each in task["comparisons"]:
            seeds = sorted({gap["seed"] for gap in each["gaps"]})
            if seeds:
                found.append(
                    f"{task['name']}, {each['idea']} vs {each['baseline']}: missing seeds "
                    f"{', '.join(map(str, seeds))}"
                )
        for arm in task["arms"]:
            if arm["lost"]:
                found.append(f"{task['name']}, {arm['name']}: {_lost(arm['lost'])}")
    edges = [
        f"{arm['name']}'s {' and '.join(arm['on_edge'])} on {task['name']}"
        for task in study["tasks"]
        for arm in task["arms"]
        if arm["on_edge"]
    ]
    if edges:
        found.append(
            "chosen at the edge of what was tried, so that a wider grid may find better: "
            + ", ".join(edges)
        )
    return found


def _lost(runs: list[Mapping[str, Any]]) -> str:
    states = [run["status"] for run in runs]
    return ", ".join(
        f"{_counted(states.count(state), 'run')} {state}" for state in dict.fromkeys(states)
    )


def _all(count: int) -> str:
    return "The one prediction" if count == 1 else f"Each of the {count} predictions"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _are(count: int, noun: str) -> str:
    return f"{_counted(count, noun)} {'is' if count == 1 else 'are'}"
