"""What the report's plots show, as rows of numbers: drawn as they are, and written as CSV.

Never imports torch or matplotlib.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from mixbench.compare.content import StudyReport, TaskReport
from mixbench.core.overrides import is_number
from mixbench.report.marks import Panel, Plot, is_shown
from mixbench.report.panels import (
    against_panel,
    budget_panel,
    curves_panel,
    diagnostic_panel,
    differences_panel,
    knob_panel,
    seeds_panel,
    state_panel,
)


def study_plots(study: StudyReport) -> list[Plot]:
    """All plots of a study, that have something to show."""
    tasks = [task for task in study.tasks if task.metric is not None]
    arms = tuple(dict.fromkeys(arm.name for task in tasks for arm in task.arms))
    bounds = dict.fromkeys(task.analysis.bound_note for task in tasks if task.analysis is not None)
    kinds: list[tuple[str, str, str, Callable[[TaskReport], Panel]]] = [
        (
            "paired",
            "paired differences per seed, positive is better",
            "A dot is one seed, the square their mean with its 95 % interval, the band the margin: "
            "smaller differences do not matter.",
            differences_panel,
        ),
        (
            "seeds",
            "test score by seed",
            "A line joins the runs of one seed, which saw the same data and started alike; beside "
            "them the mean with its 95 % interval.",
            seeds_panel,
        ),
        (
            "curves",
            "learning curves on the evaluation seeds (validation)",
            "A line is one run; its marker stands at its end.",
            curves_panel,
        ),
        (
            "budget",
            "expected validation of the best of n trials",
            "What tuning with a smaller budget would have found: the expected best of n of the "
            "trials.",
            budget_panel,
        ),
        (
            "state",
            "test score against state",
            " ".join(["A marker is one run.", *bounds]),
            state_panel,
        ),
    ]
    for name in _diagnosed(tasks):
        kinds.append(
            (
                re.sub(r"[^\w]+|_", "-", name),
                f"test score against {name.replace('_', ' ')}",
                "A marker is one run, or an ablation's mean.",
                lambda task, name=name: diagnostic_panel(name, task),  # type: ignore[misc]
            )
        )
    for key in _tuned(tasks):
        name = "learning rate" if key == "lr" else key
        kinds.append(
            (
                re.sub(r"[^\w]+|_", "-", key),
                f"validation against {name}",
                "A marker is one trial's mean over the selection seeds, a line joins the best at "
                "each value. A best one at an end asks for a wider grid.",
                lambda task, key=key: knob_panel(key, task),  # type: ignore[misc]
            )
        )
    plots = []
    for slug, title, about, panel in kinds:
        panels = tuple(each for each in map(panel, tasks) if any(map(is_shown, each.marks)))
        if panels:
            plots.append(Plot(slug, title, about, arms, panels))
    for key in _numeric_keys(tasks):
        label = re.sub(r"[^\w]+|_", "-", key)
        about = "A dot is one run, a line joins the means."
        plots.append(
            Plot(
                f"by-{label}",
                f"test score against {key}",
                about,
                arms,
                (against_panel(tasks, key),),
            )
        )
    return plots


def _diagnosed(tasks: Iterable[TaskReport]) -> list[str]:
    """What mixers tell about themselves, by name."""
    runs = [run for task in tasks for arm in task.arms for run in arm.evaluation]
    return list(dict.fromkeys(name for run in runs for name in run.diagnostics))


def _tuned(tasks: Iterable[TaskReport]) -> list[str]:
    """Settings of which some arm tried several numbers; the rate comes first."""
    keys = {
        key
        for task in tasks
        for arm in task.arms
        for trial in arm.trials
        for key, value in trial.values.items()
        if is_number(value)
    }
    return sorted(keys, key=lambda key: (key != "lr", key))


def _numeric_keys(tasks: Sequence[TaskReport]) -> list[str]:
    """Dataset knobs with numbers that differ between tasks of one metric."""
    if len({(task.metric, task.dataset["_target_"]) for task in tasks}) != 1:
        return []
    keys = []
    for key in tasks[0].dataset:
        values = [task.dataset.get(key) for task in tasks]
        if all(map(is_number, values)) and len(set(values)) == len(values) > 1:
            keys.append(key)
    return keys
