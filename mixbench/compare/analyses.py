"""What only tasks can say of trained models, and their further test sets: means over runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mixbench.compare.content import TaskAnalysis
from mixbench.records.result import Result


def task_analysis(results: Sequence[Result]) -> TaskAnalysis | None:
    """What a task's analyses have in common, from the first run that has one."""
    found = next((result.analysis for result in results if result.analysis is not None), None)
    if found is None:
        return None
    return TaskAnalysis(
        title=found.title, note=found.note, bound=found.bound, bound_note=found.bound_note
    )


def mean_analysis(evaluation: Sequence[Result]) -> dict[str, float]:
    """An arm's mean of each number that all of its analysed runs have."""
    return _means([run.analysis.values for run in evaluation if run.analysis is not None])


def mean_probes(evaluation: Sequence[Result]) -> dict[str, float]:
    """An arm's mean score on each further test set, over the runs that completed."""
    return _means(
        [
            {name: scores[run.metric] for name, scores in run.probes.items() if scores is not None}
            for run in evaluation
            if run.probes
        ]
    )


def mean_diagnostics(results: Sequence[Result]) -> dict[str, float]:
    """What the mixers told about themselves, each number's mean over the runs."""
    return _means([result.diagnostics for result in results])


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = [name for name in (found[0] if found else {}) if all(name in each for each in found)]
    return {name: float(np.mean([each[name] for each in found])) for name in names}
