"""What a reader has to know first: unlike settings, outdated choices, the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from mixbench.compare.content import Environment, TaskReport
from mixbench.compare.studies import StudyRuns
from mixbench.core.overrides import flat


def config_differences(study: StudyRuns) -> list[str]:
    """What the compared arms differ in beside their mixers and what their trials vary."""
    notes = []
    for task in study.tasks.values():
        compared = [task.arms[name] for name in study.ideas + study.baselines if name in task.arms]
        configs = {}
        for arm in compared:
            result = next((run.result for run in arm.evaluation if run.result is not None), None)
            if result is not None:
                config = {k: v for k, v in result.config.items() if k not in ("mixer", "seed")}
                values = flat(config)
                values["code"] = result.code_version
                varied = {*(arm.evaluated or {}), "device", "test"}
                configs[arm.name] = {k: v for k, v in values.items() if k not in varied}
        for key in sorted(set().union(*configs.values())):
            values = {name: config[key] for name, config in configs.items() if key in config}
            if len({str(value) for value in values.values()}) > 1:
                said = ", ".join(f"{name} {value}" for name, value in values.items())
                notes.append(f"{task.name}: arms also differ in {key}: {said}")
    return notes


def stale_choices(tasks: Sequence[TaskReport]) -> list[str]:
    """Arms whose evaluation runs are of another trial than selection now prefers."""
    return [
        f"{task.name}, {arm.name}: a selection run was redone since, and another trial than "
        "the evaluated one is now the best; the same command evaluates it"
        for task in tasks
        for arm in task.arms
        if arm.chosen is not None
        and arm.evaluated is not None
        and arm.trials[arm.chosen].values != arm.evaluated
    ]


def environment_of(study: StudyRuns) -> Environment:
    """Machine and versions that the records name."""
    found: dict[str, set[str]] = {}
    dates = []
    count: Counter[str] = Counter()
    for task in study.tasks.values():
        ablations = [run for runs in task.ablations.values() for run in runs]
        for run in [run for arm in task.arms.values() for run in arm.runs] + ablations:
            count[run.status] += 1
            if run.result is None:
                continue
            dates.append(run.result.started)
            told = {
                **msgspec.structs.asdict(run.result.machine),
                "device": run.result.device,
                "threads": run.result.threads,
                "code_version": run.result.code_version,
                **run.result.versions,
            }
            for key, value in told.items():
                if value is not None:
                    found.setdefault(key, set()).add(str(value))
    return Environment(
        found={key: sorted(values) for key, values in found.items()},
        runs=dict(count),
        first_started=min(dates, default=None),
        last_started=max(dates, default=None),
    )
