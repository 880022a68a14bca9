"""Colours, markers and small helpers of the drawn plots."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from mixbench.report.marks import Mark, Panel

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#1F1F1F", "#E69F00", "#56B4E9")
"""Okabe and Ito's, which the colour-blind tell apart; each arm has a marker of its own besides."""


MARKERS = "osD^vPX"


INK, MUTED, BAND = "#202124", "#75787B", "#E9EAEC"
"""Of text and axes, of lines behind the marks, and of regions."""


NAMED = ("differences", "seeds")
"""Forms of panels that name the arms beside their marks."""


RC_SETTINGS: dict[Any, Any] = {
    "text.parse_math": False,  # names are text, whatever dollars are in them
    "text.usetex": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "mixbench",  # equal data gives equal files
    "font.size": 9,
    "axes.titlesize": "medium",
    "xtick.labelsize": "small",
    "ytick.labelsize": "small",
    "legend.fontsize": "small",
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


# What is told at each marker of a line, by the line's id in the SVG.
Tooltips: TypeAlias = dict[str, list[str]]


def style(arm: str, arms: Sequence[str]) -> tuple[int, int]:
    """Numbers of an arm's colour and marker; no two of the first 49 arms share both."""
    i = arms.index(arm)
    return i % len(COLOURS), (i + i // len(COLOURS)) % len(MARKERS)


def arm_style(arm: str, arms: Sequence[str]) -> dict[str, Any]:
    if arm not in arms:
        return {"color": MUTED, "marker": "x", "ms": 5}
    colour, marker = style(arm, arms)
    return {"color": COLOURS[colour], "marker": MARKERS[marker], "ms": 4.5}


def add_tooltip(tooltips: Tooltips, line: Line2D, titles: Sequence[str]) -> None:
    """Remember what the markers of a line stand for."""
    line.set_gid(f"tooltips{len(tooltips)}")
    tooltips[f"tooltips{len(tooltips)}"] = list(titles)


def paired_arms(panel: Panel) -> list[tuple[str, str]]:
    return list(dict.fromkeys((mark.arm, mark.versus) for mark in panel.marks if mark.versus))


def label_axes(axes: Axes, panel: Panel) -> None:
    if panel.log_x:
        axes.set_xscale("log", base=panel.log_x)
        _log_ticks(axes.xaxis, axes.get_xlim(), panel.log_x)
    if panel.log_y:
        axes.set_yscale("log")
        _log_ticks(axes.yaxis, axes.get_ylim(), 10)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)


def _log_ticks(axis: Axis, ends: tuple[float, float], base: float) -> None:
    """Plain numbers, a handful of them."""
    decades = math.log(ends[1] / ends[0], base)
    parts = (1.0,) if base != 10 or decades > 2.5 else (1.0, 3.0) if decades > 1.2 else (1, 2, 5)
    axis.set_major_locator(LogLocator(base, subs=parts))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:,.6g}")


def join_with_nan(
    lines: Iterable[Sequence[tuple[float, float]]],
) -> tuple[list[float], list[float]]:
    """Several lines as one that is broken between them."""
    points = [point for line in lines for point in (*line, (math.nan, math.nan))]
    return [x for x, _ in points], [y for _, y in points]


def known_marks(value: float | None) -> float:
    assert value is not None
    return value


def error_bars(mean: float, mark: Mark) -> str:
    ends = "" if mark.low is None else f", 95 % interval {mark.low:.4g} to {mark.high:.4g}"
    return f"{mean:.4g}{ends}"


def short_label(name: str) -> str:
    """A name that leaves room for the plot; tables have all of it."""
    return name if len(name) <= 28 else f"{name[:14]}\N{HORIZONTAL ELLIPSIS}{name[-12:]}"


def wrap_label(name: str) -> str:
    """A name in lines short enough for an axis."""
    return re.sub(r"(?<=.{6})[_ ]", lambda found: f"{found[0].strip()}\n", short_label(name))
