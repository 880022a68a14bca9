"""A task's panel of each plot, as marks. Never imports torch or matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mixbench.compare.content import EvaluationRun, TaskReport
from mixbench.core.overrides import is_number
from mixbench.report.marks import BOUND, Mark, Panel

_MOST_JOINED = 8


def differences_panel(task: TaskReport) -> Panel:
    marks = []
    for each in task.comparisons:
        marks += [
            Mark(each.idea, "seed", x=pair.difference, seed=pair.seed, versus=each.baseline)
            for pair in each.pairs
        ]
        found = each.statistics
        if found is not None:
            low, high = found.interval
            mean = Mark(each.idea, "mean", x=found.d, low=low, high=high, versus=each.baseline)
            marks.append(mean)
    assert task.margin is not None  # some run has left a result
    marks.append(Mark("", "margin", x=0.0, low=-task.margin, high=task.margin))
    return Panel(task.name, "differences", f"difference in {task.metric}", "", marks)


def seeds_panel(task: TaskReport) -> Panel:
    marks = []
    for arm in task.arms:
        marks += [
            Mark(arm.name, "seed", y=run.test, seed=run.seed)
            for run in arm.evaluation
            if run.test is not None
        ]
        if arm.test.mean is not None:
            low, high = arm.test.interval
            marks.append(Mark(arm.name, "mean", y=arm.test.mean, low=low, high=high))
    return Panel(task.name, "seeds", "", f"test {task.metric}", marks)


def curves_panel(task: TaskReport) -> Panel:
    marks = [
        Mark(arm.name, "run", x=step, y=score, seed=run.seed)
        for arm in task.arms
        for run in arm.evaluation
        for step, score in run.history
    ]
    # An error falls over orders of magnitude.
    falls = not task.higher_is_better
    positive = all(mark.y is not None and mark.y > 0 for mark in marks)
    return Panel(
        task.name,
        "curves",
        "optimizer steps",
        f"validation {task.metric}",
        marks,
        log_y=falls and positive,
    )


def budget_panel(task: TaskReport) -> Panel:
    marks = [
        Mark(arm.name, "expected best", x=n, y=score)
        for arm in task.arms
        if len(arm.budget) > 1
        for n, score in enumerate(arm.budget, start=1)
        if score is not None
    ]
    label = f"expected validation {task.metric}"
    return Panel(task.name, "lines", "trials n", label, marks, whole_x=True)


def state_panel(task: TaskReport) -> Panel:
    marks = _runs(task, lambda run: run.state)
    if marks and task.analysis is not None:
        bound = task.analysis.bound
        ends = zip(bound.state_size, bound.score, strict=True)
        marks += [Mark("", BOUND, x=x, y=y) for x, y in ends]
    label = "state: numbers held a sequence"
    return Panel(task.name, "scatter", label, f"test {task.metric}", marks, log_x=10)


def diagnostic_panel(name: str, task: TaskReport) -> Panel:
    """Test scores against a number that the mixers tell about themselves."""
    marks = _runs(task, lambda run: run.diagnostics.get(name))
    marks += [
        Mark(each.name, "ablation", x=each.diagnostics[name], y=each.test.mean)
        for each in task.ablations
        if each.diagnostics.get(name, 0) > 0 and each.test.mean is not None
    ]
    label = name.replace("_", " ")
    return Panel(task.name, "scatter", label, f"test {task.metric}", marks, log_x=10)


def _runs(task: TaskReport, x_of: Callable[[EvaluationRun], float | None]) -> list[Mark]:
    return [
        Mark(arm.name, "run", x=x, y=run.test, seed=run.seed)
        for arm in task.arms
        for run in arm.evaluation
        if (x := x_of(run)) and x > 0 and run.test is not None
    ]


def knob_panel(key: str, task: TaskReport) -> Panel:
    """Trials against a setting; only of arms that tried several values of it."""
    marks: list[Mark] = []
    for arm in task.arms:
        tried: dict[float, list[float]] = {}
        for trial in arm.trials:
            if trial.mean is not None and is_number(trial.values.get(key)):
                tried.setdefault(trial.values[key], []).append(trial.mean)
        if len(tried) > 1:
            for value, means in sorted(tried.items()):
                means = sorted(means, reverse=task.higher_is_better)
                # A random search has a value a trial, which no line should join.
                kinds = ["best trial" if len(tried) <= _MOST_JOINED else "trial"]
                kinds += ["trial"] * (len(means) - 1)
                marks += [
                    Mark(arm.name, kind, x=value, y=mean)
                    for kind, mean in zip(kinds, means, strict=True)
                ]
    positive = all(mark.x is not None and mark.x > 0 for mark in marks)
    label = f"mean validation {task.metric}"
    return Panel(task.name, "lines", key, label, marks, log_x=10 if positive else 0)


def against_panel(tasks: Sequence[TaskReport], key: str) -> Panel:
    """Every arm's test score against a knob of the dataset."""
    marks = []
    for task in sorted(tasks, key=lambda task: task.dataset[key]):
        x = task.dataset[key]
        for arm in task.arms:
            if arm.test.mean is None:
                continue
            marks += [
                Mark(arm.name, "seed", x, run.test, seed=run.seed, task=task.name)
                for run in arm.evaluation
                if run.test is not None
            ]
            (low, high), mean = arm.test.interval, arm.test.mean
            marks.append(Mark(arm.name, "mean", x, mean, low, high, task=task.name))
    positive = all(mark.x is not None and mark.x > 0 for mark in marks)
    label = f"test {tasks[0].metric}"
    return Panel("", "lines", key, label, marks, log_x=2 if positive else 0)
