"""What the report's plots show, as rows of numbers: drawn as they are, and written as CSV.

Never imports torch or matplotlib.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mixbench.overrides import is_number
from mixbench.stats import STATE_BITS, recalled_bits

Form = Literal["differences", "seeds", "curves", "lines", "scatter"]

COLUMNS = ("task", "arm", "versus", "kind", "seed", "x", "y", "low", "high")
"""Of a plot's CSV; what does not apply is empty."""

BOUND = "information bound"

_MOST_JOINED = 8


@dataclass(frozen=True)
class Mark:
    """One thing that is drawn, and one line of the CSV.

    Attributes:
        arm: Whose it is: an arm's or an ablation's name; empty for what is no one's.
        kind: What it is: `seed`, `mean`, `run`, `trial`, `best trial` at its value, `expected
            best`, `ablation`, `margin` or `information bound`.
        x: Where along the horizontal axis; None where that holds names.
        y: Where along the vertical axis; None where that holds names.
        low: Lower end of its 95 % interval, or of a band.
        high: Upper end.
        versus: The arm that a difference is to.
        seed: The run's seed.
        task: Its task, where a panel shows several.
    """

    arm: str
    kind: str
    x: float | None = None
    y: float | None = None
    low: float | None = None
    high: float | None = None
    versus: str = ""
    seed: int | None = None
    task: str = ""


@dataclass(frozen=True)
class Panel:
    """One pair of axes: a task's, or all tasks' where `task` is empty."""

    task: str
    form: Form
    x_label: str
    y_label: str
    marks: Sequence[Mark]
    log_x: float = 0
    log_y: bool = False
    whole_x: bool = False


@dataclass(frozen=True)
class Plot:
    """One figure: a question, and a panel for every task that has something to show.

    Attributes:
        slug: What its files are called by.
        title: What it shows.
        about: How to read it.
        arms: All arms of the study; an arm's place in it is its colour and its marker.
    """

    slug: str
    title: str
    about: str
    arms: tuple[str, ...]
    panels: tuple[Panel, ...]


def study_plots(study: Mapping[str, Any]) -> list[Plot]:
    """All plots of a study, from `comparison.compare`, that have something to show."""
    tasks = [task for task in study["tasks"] if task["metric"] is not None]
    arms = tuple(dict.fromkeys(arm["name"] for task in tasks for arm in task["arms"]))
    limit = (
        "In the shaded region a state of so few numbers, "
        f"{STATE_BITS} bits each, cannot hold what so many right answers take (Fano's inequality)."
        if any(task["recall"] for task in tasks)
        else ""
    )
    kinds: list[tuple[str, str, str, Callable[[Mapping[str, Any]], Panel]]] = [
        (
            "paired",
            "paired differences per seed, positive is better",
            "A dot is one seed, the square their mean with its 95 % interval, the band the margin: "
            "smaller differences do not matter.",
            _differences,
        ),
        (
            "seeds",
            "test score by seed",
            "A line joins the runs of one seed, which saw the same data and started alike; beside "
            "them the mean with its 95 % interval.",
            _seeds,
        ),
        (
            "curves",
            "learning curves on the evaluation seeds (validation)",
            "A line is one run; its marker stands at its end.",
            _curves,
        ),
        (
            "budget",
            "expected validation of the best of n trials",
            "What tuning with a smaller budget would have found: the expected best of n of the "
            "trials.",
            _budget,
        ),
        (
            "state",
            "test score against state",
            f"A marker is one run. {limit}",
            _state,
        ),
        ("cells", "test score against cells", "A marker is one run.", _cells),
    ]
    for key in _tuned(tasks):
        name = "learning rate" if key == "lr" else key
        kinds.append(
            (
                re.sub(r"[^\w]+|_", "-", key),
                f"validation against {name}",
                "A marker is one trial's mean over the selection seeds, a line joins the best at "
                "each value. A best one at an end asks for a wider grid.",
                lambda task, key=key: _knob(key, task),  # type: ignore[misc]
            )
        )
    plots = []
    for slug, title, about, panel in kinds:
        panels = tuple(each for each in map(panel, tasks) if any(map(_is_shown, each.marks)))
        if panels:
            plots.append(Plot(slug, title, about, arms, panels))
    for key in _numeric_keys(tasks):
        label = re.sub(r"[^\w]+|_", "-", key)
        about = "A dot is one run, a line joins the means."
        plots.append(
            Plot(f"by-{label}", f"test score against {key}", about, arms, (_against(tasks, key),))
        )
    return plots


def file_name(prefix: str, plot: Plot) -> str:
    """What a plot's files are called, without the ending; safe whatever a study is called."""
    start = re.sub(r"[^\w-]+", "-", prefix)
    return f"{start}-{plot.slug}"


def as_csv(plot: Plot) -> str:
    """The plot's numbers, one line a mark, with the columns of `COLUMNS`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for panel in plot.panels:
        for mark in panel.marks:
            texts = (mark.task or panel.task, mark.arm, mark.versus, mark.kind)
            numbers = (mark.seed, mark.x, mark.y, mark.low, mark.high)
            writer.writerow([*map(_inert, texts), *("" if n is None else repr(n) for n in numbers)])
    return out.getvalue()


def _inert(text: str) -> str:
    """Text that no spreadsheet takes for a formula: records may come from strangers."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _is_shown(mark: Mark) -> bool:
    """Whether it is more than what lies behind others."""
    return mark.kind not in ("margin", BOUND)


def _differences(task: Mapping[str, Any]) -> Panel:
    marks = []
    for each in task["comparisons"]:
        names = {"arm": each["idea"], "versus": each["baseline"]}
        marks += [
            Mark(**names, kind="seed", x=pair["difference"], seed=pair["seed"])
            for pair in each["pairs"]
        ]
        if "interval" in each:
            low, high = each["interval"]
            marks.append(Mark(**names, kind="mean", x=each["d"], low=low, high=high))
    marks.append(Mark("", "margin", x=0.0, low=-task["margin"], high=task["margin"]))
    return Panel(task["name"], "differences", f"difference in {task['metric']}", "", marks)


def _seeds(task: Mapping[str, Any]) -> Panel:
    marks = []
    for arm in task["arms"]:
        marks += [
            Mark(arm["name"], "seed", y=run["test"], seed=run["seed"])
            for run in arm["evaluation"]
            if run["test"] is not None
        ]
        if arm["test"]["mean"] is not None:
            low, high = arm["test"]["interval"]
            marks.append(Mark(arm["name"], "mean", y=arm["test"]["mean"], low=low, high=high))
    return Panel(task["name"], "seeds", "", f"test {task['metric']}", marks)


def _curves(task: Mapping[str, Any]) -> Panel:
    marks = [
        Mark(arm["name"], "run", x=step, y=score, seed=run["seed"])
        for arm in task["arms"]
        for run in arm["evaluation"]
        for step, score in run["history"]
    ]
    # An error falls over orders of magnitude.
    falls = not task["higher_is_better"]
    positive = all(mark.y is not None and mark.y > 0 for mark in marks)
    return Panel(
        task["name"],
        "curves",
        "optimizer steps",
        f"validation {task['metric']}",
        marks,
        log_y=falls and positive,
    )


def _budget(task: Mapping[str, Any]) -> Panel:
    marks = [
        Mark(arm["name"], "expected best", x=n, y=score)
        for arm in task["arms"]
        if len(arm["budget"]) > 1
        for n, score in enumerate(arm["budget"], start=1)
        if score is not None
    ]
    label = f"expected validation {task['metric']}"
    return Panel(task["name"], "lines", "trials n", label, marks, whole_x=True)


def _state(task: Mapping[str, Any]) -> Panel:
    marks = _runs(task, "state")
    if marks and task["recall"] is not None:
        marks += _bound(task["recall"])
    label = "state: numbers held a sequence"
    return Panel(task["name"], "scatter", label, f"test {task['metric']}", marks, log_x=10)


def _bound(recall: Mapping[str, Any]) -> list[Mark]:
    """The best accuracy that a state can have by its size, from one bit to perfect recall."""
    accuracy = np.linspace(1 / recall["values"], 1, 401)
    bits = recalled_bits(recall["pairs"], recall["values"], 1 - accuracy)
    return [
        Mark("", BOUND, x=float(b) / STATE_BITS, y=float(a))
        for a, b in zip(accuracy, bits, strict=True)
        if b >= 1
    ]


def _cells(task: Mapping[str, Any]) -> Panel:
    marks = _runs(task, "n_cells")
    marks += [
        Mark(each["name"], "ablation", x=each["n_cells"], y=each["test"]["mean"])
        for each in task["ablations"]
        if each["n_cells"] and each["test"]["mean"] is not None
    ]
    label = "cells in the fullest layer and sequence"
    return Panel(task["name"], "scatter", label, f"test {task['metric']}", marks, log_x=10)


def _runs(task: Mapping[str, Any], key: str) -> list[Mark]:
    return [
        Mark(arm["name"], "run", x=run[key], y=run["test"], seed=run["seed"])
        for arm in task["arms"]
        for run in arm["evaluation"]
        if run[key] and run[key] > 0 and run["test"] is not None
    ]


def _tuned(tasks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Settings of which some arm tried several numbers; the rate comes first."""
    keys = {
        key
        for task in tasks
        for arm in task["arms"]
        for trial in arm["trials"]
        for key, value in trial["values"].items()
        if is_number(value)
    }
    return sorted(keys, key=lambda key: (key != "lr", key))


def _knob(key: str, task: Mapping[str, Any]) -> Panel:
    """Trials against a setting; only of arms that tried several values of it."""
    marks: list[Mark] = []
    for arm in task["arms"]:
        tried: dict[float, list[float]] = {}
        for trial in arm["trials"]:
            if trial["mean"] is not None and is_number(trial["values"].get(key)):
                tried.setdefault(trial["values"][key], []).append(trial["mean"])
        if len(tried) > 1:
            for value, means in sorted(tried.items()):
                means = sorted(means, reverse=task["higher_is_better"])
                # A random search has a value a trial, which no line should join.
                kinds = ["best trial" if len(tried) <= _MOST_JOINED else "trial"]
                kinds += ["trial"] * (len(means) - 1)
                marks += [
                    Mark(arm["name"], kind, x=value, y=mean)
                    for kind, mean in zip(kinds, means, strict=True)
                ]
    positive = all(mark.x is not None and mark.x > 0 for mark in marks)
    label = f"mean validation {task['metric']}"
    return Panel(task["name"], "lines", key, label, marks, log_x=10 if positive else 0)


def _numeric_keys(tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Dataset knobs with numbers that differ between tasks of one metric."""
    if len({(task["metric"], task["dataset"]["_target_"]) for task in tasks}) != 1:
        return []
    keys = []
    for key in tasks[0]["dataset"]:
        values = [task["dataset"].get(key) for task in tasks]
        if all(map(is_number, values)) and len(set(values)) == len(values) > 1:
            keys.append(key)
    return keys


def _against(tasks: Sequence[Mapping[str, Any]], key: str) -> Panel:
    """Every arm's test score against a knob of the dataset."""
    marks = []
    for task in sorted(tasks, key=lambda task: task["dataset"][key]):
        x = task["dataset"][key]
        for arm in task["arms"]:
            if arm["test"]["mean"] is None:
                continue
            marks += [
                Mark(arm["name"], "seed", x, run["test"], seed=run["seed"], task=task["name"])
                for run in arm["evaluation"]
                if run["test"] is not None
            ]
            (low, high), mean = arm["test"]["interval"], arm["test"]["mean"]
            marks.append(Mark(arm["name"], "mean", x, mean, low, high, task=task["name"]))
    positive = all(mark.x is not None and mark.x > 0 for mark in marks)
    label = f"test {tasks[0]['metric']}"
    return Panel("", "lines", key, label, marks, log_x=2 if positive else 0)
