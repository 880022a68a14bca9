"""The report's plots: one figure a question, one panel a task. Needs matplotlib, never torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mixbench.overrides import is_number

# Okabe and Ito's colours, which the colour-blind tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"

Panel = Callable[[Axes, Mapping[str, Any]], bool]


def draw_plots(study: Mapping[str, Any], folder: Path, prefix: str) -> list[tuple[str, str]]:
    """Draw all plots of a study that have something to show.

    Args:
        study: From `comparison.compare`.
        folder: Where the PNG files go; it is made.
        prefix: Start of their names.

    Returns:
        What each shows, and its file name.
    """
    panels: list[tuple[str, str, Panel]] = [
        ("paired", "paired differences per seed, positive is better", _paired),
        ("curves", "learning curves on the evaluation seeds (validation)", _curves),
        ("budget", "expected validation of the best of n trials", _budget),
        ("state", "test score against state", _state),
        ("cells", "test score against cells", _cells),
        *_knobs(study),
    ]
    name = re.sub(r"[^\w-]+", "-", prefix)
    tasks = [task for task in study["tasks"] if task["metric"] is not None]
    drawn = []
    for kind, title, panel in panels:
        figure = _grid(title, tasks, panel)
        if figure is not None:
            drawn.append((title, _save(figure, folder, f"{name}-{kind}.png")))
    for key in _numeric_keys(tasks):
        figure = _against(tasks, key)
        label = key.replace("_", "-")
        drawn.append((f"test score against {key}", _save(figure, folder, f"{name}-by-{label}.png")))
    return drawn


def _grid(title: str, tasks: Sequence[Mapping[str, Any]], panel: Panel) -> Figure | None:
    """One panel a task; None where no task has anything to show."""
    columns = min(3, len(tasks))
    if columns == 0:
        return None
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(4.4 * columns + 0.6, 3.4 * rows + 0.4), layout="constrained")
    figure.suptitle(title)
    shown = False
    for axes, task in zip(
        figure.subplots(rows, columns, squeeze=False).flat,
        [*tasks, *[None] * (rows * columns - len(tasks))],
        strict=True,
    ):
        if task is None or not panel(axes, task):
            axes.set_axis_off()
            continue
        shown = True
        axes.set_title(task["name"], fontsize="medium")
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            unique = dict(zip(labels, handles, strict=True))
            axes.legend(unique.values(), unique.keys(), fontsize="x-small")
    return figure if shown else None


def _save(figure: Figure, folder: Path, name: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    # No date or version inside, so that equal data gives equal files.
    figure.savefig(folder / name, dpi=110, metadata={"Software": None})
    return name


def _style(task: Mapping[str, Any], arm: str) -> dict[str, Any]:
    names = [each["name"] for each in task["arms"]]
    i = names.index(arm)
    return {"color": _COLOURS[i % len(_COLOURS)], "marker": _MARKERS[i % len(_MARKERS)], "ms": 4}


def _paired(axes: Axes, task: Mapping[str, Any]) -> bool:
    comparisons = [each for each in task["comparisons"] if each["pairs"]]
    for i, each in enumerate(comparisons):
        y = [pair["difference"] for pair in each["pairs"]]
        spread = [i + 0.3 * (j / max(1, len(y) - 1) - 0.5) for j in range(len(y))]
        colour = _COLOURS[i % len(_COLOURS)]
        axes.plot(spread, y, "o", color=colour, ms=4, alpha=0.7)
        if each.get("interval") and None not in each["interval"]:
            low, high = each["interval"]
            d = each["d"]
            axes.errorbar(
                i + 0.3, d, [[d - low], [high - d]], fmt="s", color=colour, capsize=4, ms=5
            )
    axes.axhline(0, color="0.5", lw=0.8)
    axes.axhspan(-task["margin"], task["margin"], color="0.9", zorder=0)
    axes.set_xticks(
        range(len(comparisons)),
        [f"{each['idea']}\nvs {each['baseline']}" for each in comparisons],
        fontsize="small",
    )
    axes.set_xlim(-0.6, len(comparisons) - 0.2)
    axes.set_ylabel(f"difference in {task['metric']} (band: margin)")
    return bool(comparisons)


def _curves(axes: Axes, task: Mapping[str, Any]) -> bool:
    shown = False
    for arm in task["arms"]:
        for run in arm["evaluation"]:
            if run["history"]:
                steps, scores = zip(*run["history"], strict=True)
                style = _style(task, arm["name"]) | {"marker": None}
                axes.plot(steps, scores, lw=0.9, alpha=0.6, label=arm["name"], **style)
                shown = True
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel(f"validation {task['metric']}")
    if not task["higher_is_better"]:
        axes.set_yscale("log")
    return shown


def _budget(axes: Axes, task: Mapping[str, Any]) -> bool:
    shown = False
    for arm in task["arms"]:
        points = [(n, v) for n, v in enumerate(arm["budget"], start=1) if v is not None]
        if len(arm["budget"]) > 1 and points:
            axes.plot(*zip(*points, strict=True), label=arm["name"], **_style(task, arm["name"]))
            shown = True
    axes.set_xlabel("trials n")
    axes.set_ylabel(f"expected validation {task['metric']}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return shown


def _state(axes: Axes, task: Mapping[str, Any]) -> bool:
    return _scatter(axes, task, "state", "state: numbers held a sequence")


def _cells(axes: Axes, task: Mapping[str, Any]) -> bool:
    return _scatter(axes, task, "n_cells", "cells in the fullest layer and sequence")


def _scatter(axes: Axes, task: Mapping[str, Any], key: str, label: str) -> bool:
    shown = False
    for arm in task["arms"]:
        points = [
            (run[key], run["test"])
            for run in arm["evaluation"]
            if run[key] and run["test"] is not None
        ]
        if points:
            style = _style(task, arm["name"])
            axes.plot(*zip(*points, strict=True), ls="", label=arm["name"], alpha=0.7, **style)
            shown = True
    if key == "n_cells":
        points = [(e["n_cells"], e["test"]["mean"]) for e in task["ablations"] if e["n_cells"]]
        points = [point for point in points if point[1] is not None]
        if points:
            axes.plot(*zip(*points, strict=True), "x", color="0.4", label="ablations (mean)")
    if shown:
        axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel(f"test {task['metric']}")
    return shown


def _knobs(study: Mapping[str, Any]) -> list[tuple[str, str, Panel]]:
    """A panel for every setting of which some arm tried several numbers; the rate comes first."""
    keys = {
        key
        for task in study["tasks"]
        for arm in task["arms"]
        for trial in arm["trials"]
        for key, value in trial["values"].items()
        if is_number(value)
    }
    return [
        (
            re.sub(r"[^\w]+|_", "-", key),
            f"validation against {'learning rate' if key == 'lr' else key}",
            partial(_knob, key),
        )
        for key in sorted(keys, key=lambda key: (key != "lr", key))
    ]


def _knob(key: str, axes: Axes, task: Mapping[str, Any]) -> bool:
    """Trials against a setting; only arms that tried several values of it."""
    shown = False
    values: list[float] = []
    for arm in task["arms"]:
        points = sorted(
            (trial["values"][key], trial["mean"])
            for trial in arm["trials"]
            if trial["mean"] is not None and is_number(trial["values"].get(key))
        )
        values += [value for value, _ in points]
        if len({value for value, _ in points}) > 1:
            style = _style(task, arm["name"]) | {"linestyle": ":"}
            axes.plot(*zip(*points, strict=True), label=arm["name"], **style)
            shown = True
    if shown and min(values) > 0:
        axes.set_xscale("log")
    axes.set_xlabel(key)
    axes.set_ylabel(f"mean validation {task['metric']}")
    return shown


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


def _against(tasks: Sequence[Mapping[str, Any]], key: str) -> Figure:
    """Every arm's test score against a knob of the dataset."""
    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    names = dict.fromkeys(arm["name"] for task in tasks for arm in task["arms"])
    for i, name in enumerate(names):
        colour, marker = _COLOURS[i % len(_COLOURS)], _MARKERS[i % len(_MARKERS)]
        points = []
        for task in tasks:
            for arm in task["arms"]:
                if arm["name"] == name and arm["test"]["mean"] is not None:
                    points.append((task["dataset"][key], arm["test"]["mean"]))
                    scores = [r["test"] for r in arm["evaluation"] if r["test"] is not None]
                    at = [task["dataset"][key]] * len(scores)
                    axes.plot(at, scores, ".", color=colour, alpha=0.4, ms=4)
        if points:
            axes.plot(*zip(*sorted(points), strict=True), label=name, color=colour, marker=marker)
    axes.set_xlabel(key)
    axes.set_ylabel(f"test {tasks[0]['metric']}")
    axes.set_xscale("log", base=2)
    axes.legend(fontsize="x-small")
    return figure
