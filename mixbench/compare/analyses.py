"""What only tasks can say of trained models, and their further test sets: means over runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Results = Sequence[Mapping[str, Any] | None]


def task_analysis(completed: Results) -> dict[str, Any] | None:
    """What a task's analyses have in common, from the first run that has one."""
    analyses = (result.get("analysis") for result in completed if result is not None)
    found = next((each for each in analyses if each is not None), None)
    return found and {key: value for key, value in found.items() if key != "values"}


def mean_analysis(evaluation: Results) -> dict[str, float]:
    """An arm's mean of each number that all of its analysed runs have."""
    analyses = [result.get("analysis") for result in evaluation if result is not None]
    return _means([each["values"] for each in analyses if each is not None])


def mean_probes(evaluation: Results) -> dict[str, float]:
    """An arm's mean score on each further test set, over the runs that completed."""
    probed = [result for result in evaluation if result is not None and result.get("probes")]
    return _means(
        [
            {
                name: scores[result["metric"]]
                for name, scores in result["probes"].items()
                if scores is not None
            }
            for result in probed
        ]
    )


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = [name for name in (found[0] if found else {}) if all(name in each for each in found)]
    return {name: float(np.mean([each[name] for each in found])) for name in names}
