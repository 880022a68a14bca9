"""What an arm of a comparison has come to: choice, scores, costs, signature, losses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from mixbench.compare.studies import ArmRuns, Run, StudyRuns, TaskRuns
from mixbench.core.overrides import is_number
from mixbench.records.folder import read_history
from mixbench.records.result import COMPLETED, DIVERGED
from mixbench.stats.summaries import expected_best, interquartile_mean, t_interval


def worst_metrics(task: TaskRuns, metric: str | None, sign: float) -> float | None:
    """The score of a diverged evaluation run: the worst that was seen, chance included.

    A metric like the squared error has no worst value, and an infinite one has no mean.
    """
    seen = []
    for run in [run for arm in task.arms.values() for run in arm.evaluation]:
        score = run.score("test")
        if score is not None and run.result is not None:
            seen.append(score)
            if metric is not None and metric in run.result["trivial_baseline"]:
                seen.append(run.result["trivial_baseline"][metric])
    return min(seen, key=lambda score: sign * score, default=None)


def test_score(run: Run, worst: float | None) -> float | None:
    """An evaluation run's score; None for a run that failed or is missing."""
    return worst if run.status == DIVERGED else run.score("test")


def arm_summary(arm: ArmRuns, sign: float, worst: float | None) -> dict[str, Any]:
    chosen = arm.choose()
    completed = [run.result for run in arm.evaluation if run.status == COMPLETED]
    completed = completed or [run.result for run in arm.runs if run.status == COMPLETED]
    example = completed[0] if completed else None
    seconds = [run.result["seconds"]["total"] for run in arm.runs if run.result is not None]
    trials = [
        {
            "values": trial.values,
            "seeds": [run.seed for run in trial.runs],
            "scores": [run.score("valid") for run in trial.runs],
            "mean": trial.mean_validation(arm.shared_seeds),
            "status": dict(Counter(run.status for run in trial.runs)),
        }
        for trial in arm.trials
    ]
    values = arm.evaluated if arm.evaluated is not None else {}
    return {
        "name": arm.name,
        "mixer": None if example is None else example["config"]["mixer"]["_target_"],
        "config": None if example is None else _without_seed(example["config"]),
        "parameters": None if example is None else example["parameters"]["total"],
        "state_size": _largest(completed, "state_size"),
        "measured_state_size": _largest(completed, "measured_state_size"),
        "diagnostics": _diagnostics(completed),
        "operations": None if example is None else example["operations"]["per_token"],
        "pair_operations": None if example is None else example["operations"]["per_pair"],
        "trials": trials,
        "chosen": chosen,
        "evaluated": arm.evaluated,
        "inherited": arm.inherited,
        "on_edge": _on_edge(arm.grid, values) if arm.on_edge is None else arm.on_edge,
        "valid": _summary([run.score("valid") for run in arm.evaluation]),
        "test": _summary([test_score(run, worst) for run in arm.evaluation]),
        "evaluation": [_evaluation(run) for run in arm.evaluation],
        "lost": _lost(arm.runs),
        "seconds": {
            "total": sum(seconds),
            "mean": sum(seconds) / len(seconds) if seconds else None,
        },
        "signature": _signature(arm.evaluation),
        "budget": _budget(trials, sign),
    }


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "seed"}


def _largest(results: Iterable[Any], key: str) -> int | None:
    return max((result[key] for result in results if result[key] is not None), default=None)


def _diagnostics(results: Sequence[Any]) -> dict[str, float]:
    """What the mixers told about themselves, each number's mean over the runs that have it."""
    found: dict[str, list[float]] = {}
    for result in results:
        for name, value in result["diagnostics"].items():
            found.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def _on_edge(grid: Mapping[str, Sequence[Any]], values: Mapping[str, Any]) -> list[str]:
    """Keys whose chosen value is the smallest or largest of several numbers that were tried."""
    edges = []
    for key, tried in grid.items():
        numbers = list(filter(is_number, tried))
        extreme = len(numbers) > 1 and values.get(key) in (min(numbers), max(numbers))
        if extreme and len(numbers) == len(tried):
            edges.append(key)
    return edges


def _evaluation(run: Run) -> dict[str, Any]:
    result = run.result or {}
    history = []
    if run.result is not None:
        name = f"valid/{run.result['metric']}"
        # A curve that is missing or damaged is not drawn; the scores are those of the result.
        with suppress(OSError, ValueError, KeyError):
            history = [
                [row["step"], row[name]]
                for row in read_history(run.folder.history)
                if math.isfinite(row["step"]) and math.isfinite(row[name])
            ]
    return {
        "seed": run.seed,
        "status": run.status,
        "valid": run.score("valid"),
        "test": run.score("test"),
        "diagnostics": result.get("diagnostics", {}),
        "state": result.get("measured_state_size") or result.get("state_size"),
        "history": history,
        "record": run.folder.path.name,
    }


def _summary(scores: Sequence[float | None]) -> dict[str, Any]:
    """Mean with its 95 % t interval, and interquartile mean; None where a score is not known."""
    known = [score for score in scores if score is not None]
    if not known or len(known) < len(scores):
        return {"mean": None, "interval": None, "iqm": None, "n": len(known)}
    values = np.array(known)
    return {
        "mean": float(values.mean()),
        "interval": [finite_or_none(end) for end in t_interval(values)],
        "iqm": float(interquartile_mean(values)),
        "n": len(known),
    }


def _budget(trials: Sequence[Mapping[str, Any]], sign: float) -> list[float | None]:
    """Expected validation of the best of n trials, n = 1..M; None where a lost one takes part."""
    scores = [-math.inf if trial["mean"] is None else sign * trial["mean"] for trial in trials]
    if not scores:
        return []
    best = expected_best(np.array(scores)).tolist()
    return [None if math.isinf(score) else sign * score for score in best]


def _signature(runs: Sequence[Run]) -> dict[str, Any]:
    """Over an arm's trained models: a check holds if it holds in all of them."""
    completed = [run.result for run in runs if run.result and run.status == COMPLETED]
    signatures = [result["signature"] for result in completed]
    if not signatures:
        return {"outcome": "not evaluated", "failing": {}, "of": 0, "models": 0, "checks": []}
    stated = [signature for signature in signatures if signature is not None]
    if not stated:
        return {
            "outcome": "not stated",
            "failing": {},
            "of": 0,
            "models": len(signatures),
            "checks": [],
        }
    failing = Counter(name for signature in stated for name in signature["failing"])
    checks = [
        {
            "name": check["name"],
            "layer": check["layer"],
            "predicted": check["predicted"],
            "observed": check["observed"],
            "holds_in": sum(
                other["holds"]
                for signature in stated
                for other in signature["checks"]
                if (other["name"], other["layer"]) == (check["name"], check["layer"])
            ),
        }
        for check in stated[0]["checks"]
    ]
    return {
        "outcome": "refuted" if failing else "confirmed",
        "failing": dict(failing),
        "of": stated[0]["of"],
        "models": len(stated),
        "checks": checks,
    }


def _lost(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return [
        {
            "record": run.folder.path.name,
            "seed": run.seed,
            "status": run.status,
            "reason": None if run.result is None else run.result["reason"],
        }
        for run in runs
        if run.status != COMPLETED
    ]


def ablation_rows(
    study: StudyRuns, task: TaskRuns, sign: float, worst: float | None
) -> list[dict[str, Any]]:
    """The first idea with one thing changed, against itself, paired by seed."""
    if not task.ablations:
        return []
    whole = {run.seed: test_score(run, worst) for run in task.arms[study.ideas[0]].evaluation}
    out = []
    for name, runs in task.ablations.items():
        scores = {run.seed: test_score(run, worst) for run in runs}
        differences = [
            None if score is None or (other := whole.get(seed)) is None else sign * (score - other)
            for seed, score in scores.items()
        ]
        out.append(
            {
                "name": name,
                "overrides": study.ablations[name],
                "test": _summary(list(scores.values())),
                "scores": [scores[seed] for seed in sorted(scores)],
                "difference": _summary(differences),
                "diagnostics": _diagnostics(
                    [run.result for run in runs if run.score("valid") is not None]
                ),
                "signature": _signature(runs),
                "lost": _lost(runs),
            }
        )
    return out


def finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
