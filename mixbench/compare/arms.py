"""What an arm of a comparison has come to: choice, scores, costs, signature, losses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from mixbench.compare.analyses import mean_analysis, mean_diagnostics, mean_probes
from mixbench.compare.content import (
    AblationReport,
    ArmReport,
    ArmSeconds,
    EvaluationRun,
    LostRun,
    SignatureCheck,
    SignatureReport,
    Summary,
    TrialReport,
)
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
            if metric is not None and metric in run.result.trivial_baseline:
                seen.append(run.result.trivial_baseline[metric])
    return min(seen, key=lambda score: sign * score, default=None)


def test_score(run: Run, worst: float | None) -> float | None:
    """An evaluation run's score; None for a run that failed or is missing."""
    return worst if run.status == DIVERGED else run.score("test")


def arm_report(arm: ArmRuns, sign: float, worst: float | None) -> ArmReport:
    """All that a report says of an arm."""
    completed = arm.completed
    example = completed[0] if completed else None
    operations = None if example is None else example.operations
    seconds = [run.result.seconds.total for run in arm.runs if run.result is not None]
    judged = [run.result for run in arm.evaluation if run.result is not None]
    trials = [_trial(arm, number) for number in range(len(arm.trials))]
    return ArmReport(
        name=arm.name,
        mixer=None if example is None else example.config["mixer"]["_target_"],
        config=None if example is None else _without_seed(example.config),
        parameters=None if example is None else example.parameters.total,
        state_size=_largest([result.state_size for result in completed]),
        measured_state_size=_largest([result.measured_state_size for result in completed]),
        diagnostics=mean_diagnostics(completed),
        operations=None if operations is None else operations.per_token,
        pair_operations=None if operations is None else operations.per_pair,
        trials=trials,
        chosen=arm.choose(),
        evaluated=arm.evaluated,
        inherited=arm.inherited,
        on_edge=_on_edge(arm.grid, arm.evaluated or {}) if arm.on_edge is None else arm.on_edge,
        valid=_summary([run.score("valid") for run in arm.evaluation]),
        test=_summary([test_score(run, worst) for run in arm.evaluation]),
        evaluation=[_evaluation(run) for run in arm.evaluation],
        lost=_lost(arm.runs),
        seconds=ArmSeconds(
            total=sum(seconds), mean=sum(seconds) / len(seconds) if seconds else None
        ),
        signature=_signature(arm.evaluation),
        budget=_budget(trials, sign),
        analysis=mean_analysis(judged),
        probes=mean_probes(judged),
    )


def _trial(arm: ArmRuns, number: int) -> TrialReport:
    trial = arm.trials[number]
    return TrialReport(
        values=trial.values,
        seeds=[run.seed for run in trial.runs],
        scores=[run.score("valid") for run in trial.runs],
        mean=trial.mean_validation(arm.shared_seeds),
        status=dict(Counter(run.status for run in trial.runs)),
    )


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "seed"}


def _largest(sizes: Sequence[int | None]) -> int | None:
    return max((size for size in sizes if size is not None), default=None)


def _on_edge(grid: Mapping[str, Sequence[Any]], values: Mapping[str, Any]) -> list[str]:
    """Keys whose chosen value is the smallest or largest of several numbers that were tried."""
    edges = []
    for key, tried in grid.items():
        numbers = list(filter(is_number, tried))
        extreme = len(numbers) > 1 and values.get(key) in (min(numbers), max(numbers))
        if extreme and len(numbers) == len(tried):
            edges.append(key)
    return edges


def _evaluation(run: Run) -> EvaluationRun:
    return EvaluationRun(
        seed=run.seed,
        status=run.status,
        valid=run.score("valid"),
        test=run.score("test"),
        diagnostics={} if run.result is None else run.result.diagnostics,
        state=None if run.result is None else run.result.state_held,
        history=_history(run),
        record=run.folder.path.name,
    )


def _history(run: Run) -> list[tuple[float, float]]:
    """Steps and validation scores; empty where the curve is missing or damaged."""
    if run.result is None:
        return []
    name = f"valid/{run.result.metric}"
    with suppress(OSError, ValueError, KeyError):
        rows = [(row["step"], row[name]) for row in read_history(run.folder.history)]
        return [row for row in rows if all(map(math.isfinite, row))]
    return []


def _summary(scores: Sequence[float | None]) -> Summary:
    """None where a score is not known."""
    known = [score for score in scores if score is not None]
    if not known or len(known) < len(scores):
        return Summary(mean=None, interval=(None, None), iqm=None, n=len(known))
    values = np.array(known)
    low, high = map(finite_or_none, t_interval(values))
    return Summary(
        mean=float(values.mean()),
        interval=(low, high),
        iqm=float(interquartile_mean(values)),
        n=len(known),
    )


def _budget(trials: Sequence[TrialReport], sign: float) -> list[float | None]:
    """Expected validation of the best of n trials, n = 1..M; None where a lost one takes part."""
    scores = [-math.inf if trial.mean is None else sign * trial.mean for trial in trials]
    if not scores:
        return []
    best = expected_best(np.array(scores)).tolist()
    return [None if math.isinf(score) else sign * score for score in best]


def _signature(runs: Sequence[Run]) -> SignatureReport:
    """Over an arm's trained models: a check holds if it holds in all of them."""
    completed = [run.result for run in runs if run.result and run.status == COMPLETED]
    if not completed:
        return SignatureReport(outcome="not evaluated")
    stated = [result.signature for result in completed if result.signature is not None]
    if not stated:
        return SignatureReport(outcome="not stated", models=len(completed))
    failing = Counter(name for signature in stated for name in signature.failing)
    holds = Counter(
        (check.name, check.layer)
        for signature in stated
        for check in signature.checks
        if check.holds
    )
    checks = [
        SignatureCheck(
            name=check.name,
            layer=check.layer,
            predicted=check.predicted,
            observed=check.observed,
            holds_in=holds[check.name, check.layer],
        )
        for check in stated[0].checks
    ]
    return SignatureReport(
        outcome="refuted" if failing else "confirmed",
        failing=dict(failing),
        of=stated[0].of,
        models=len(stated),
        checks=checks,
    )


def _lost(runs: Sequence[Run]) -> list[LostRun]:
    return [
        LostRun(
            record=run.folder.path.name,
            seed=run.seed,
            status=run.status,
            reason=None if run.result is None else run.result.reason,
        )
        for run in runs
        if run.status != COMPLETED
    ]


def ablation_reports(
    study: StudyRuns, task: TaskRuns, sign: float, worst: float | None
) -> list[AblationReport]:
    """The first idea with one thing changed, against itself, paired by seed."""
    if not task.ablations:
        return []
    whole = {run.seed: test_score(run, worst) for run in task.arms[study.ideas[0]].evaluation}
    reports = []
    for name, runs in task.ablations.items():
        scores = {run.seed: test_score(run, worst) for run in runs}
        differences = [
            None if score is None or (other := whole.get(seed)) is None else sign * (score - other)
            for seed, score in scores.items()
        ]
        completed = [run.result for run in runs if run.result and run.status == COMPLETED]
        reports.append(
            AblationReport(
                name=name,
                overrides=study.ablations[name],
                test=_summary(list(scores.values())),
                scores=[scores[seed] for seed in sorted(scores)],
                difference=_summary(differences),
                diagnostics=mean_diagnostics(completed),
                signature=_signature(runs),
                lost=_lost(runs),
            )
        )
    return reports


def finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
