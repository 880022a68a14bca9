"""The forms that a panel's marks are drawn in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from mixbench.report.canvas import (
    BAND,
    INK,
    MUTED,
    Tooltips,
    add_tooltip,
    arm_style,
    error_bars,
    join_with_nan,
    known_marks,
    label_axes,
    paired_arms,
    short_label,
    wrap_label,
)
from mixbench.report.marks import BOUND, Form, Mark, Panel


def _differences(axes: Axes, panel: Panel, arms: Sequence[str], tooltips: Tooltips) -> None:
    """A line a comparison: dots above their mean."""
    pairs = paired_arms(panel)
    for i, (arm, versus) in enumerate(pairs):
        own = [mark for mark in panel.marks if (mark.arm, mark.versus) == (arm, versus)]
        shape = arm_style(arm, arms)
        dots = [mark for mark in own if mark.kind == "seed"]
        spread = [i - 0.12 - 0.2 * (j % 2) for j in range(len(dots))]
        xs = [known_marks(mark.x) for mark in dots]
        (line,) = axes.plot(xs, spread, ls="", **{**shape, "marker": "o"}, alpha=0.75)
        add_tooltip(tooltips, line, [f"seed {mark.seed}: {mark.x:+.4g}" for mark in dots])
        for mark in own:
            if mark.kind != "mean":
                continue
            d = known_marks(mark.x)
            if mark.low is not None and mark.high is not None:
                axes.plot([mark.low, mark.high], [i + 0.16] * 2, color=shape["color"], lw=2)
            (line,) = axes.plot([d], [i + 0.16], ls="", **{**shape, "marker": "s", "ms": 6})
            add_tooltip(tooltips, line, [f"{arm} vs {versus}: {error_bars(d, mark)}"])
    for mark in panel.marks:
        if mark.kind == "margin":
            axes.axvspan(known_marks(mark.low), known_marks(mark.high), color=BAND, zorder=0, lw=0)
    axes.axvline(0, color=MUTED, lw=0.8, zorder=1)
    axes.set_yticks(
        range(len(pairs)),
        [f"{short_label(arm)}\nvs {short_label(versus)}" for arm, versus in pairs],
    )
    axes.tick_params("y", length=0)
    axes.set_ylim(len(pairs) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(panel.x_label)


def _seeds(axes: Axes, panel: Panel, arms: Sequence[str], tooltips: Tooltips) -> None:
    """An arm a column; a line joins equal seeds."""
    names = list(dict.fromkeys(mark.arm for mark in panel.marks))
    dots = [mark for mark in panel.marks if mark.kind == "seed"]
    seeds: dict[int | None, list[tuple[float, float]]] = {}
    for mark in dots:
        seeds.setdefault(mark.seed, []).append((names.index(mark.arm), known_marks(mark.y)))
    axes.plot(*join_with_nan(seeds.values()), color=MUTED, lw=0.7, alpha=0.6, zorder=1)
    for i, name in enumerate(names):
        shape = arm_style(name, arms)
        own = [mark for mark in dots if mark.arm == name]
        ys = [known_marks(mark.y) for mark in own]
        (line,) = axes.plot([i] * len(own), ys, ls="", alpha=0.75, **shape)
        add_tooltip(tooltips, line, [f"{name}, seed {mark.seed}: {mark.y:.4g}" for mark in own])
        for mark in panel.marks:
            if (mark.arm, mark.kind) == (name, "mean"):
                _mean(axes, i + 0.2, mark, shape, tooltips)
    axes.set_xticks(range(len(names)), [wrap_label(name) for name in names])
    axes.set_xlim(-0.5, len(names) - 0.4)
    axes.set_ylabel(panel.y_label)


def _mean(axes: Axes, x: float, mark: Mark, shape: Mapping[str, Any], tooltips: Tooltips) -> None:
    y = known_marks(mark.y)
    if mark.low is not None and mark.high is not None:
        axes.plot([x, x], [mark.low, mark.high], color=shape["color"], lw=2)
    (line,) = axes.plot([x], [y], ls="", **{**shape, "ms": 6})
    add_tooltip(tooltips, line, [f"{mark.arm}, mean: {error_bars(y, mark)}"])


def _curves(axes: Axes, panel: Panel, arms: Sequence[str], tooltips: Tooltips) -> None:
    for arm in dict.fromkeys(mark.arm for mark in panel.marks):
        runs: dict[int | None, list[tuple[float, float]]] = {}
        for mark in panel.marks:
            if mark.arm == arm:
                runs.setdefault(mark.seed, []).append((known_marks(mark.x), known_marks(mark.y)))
        shape = arm_style(arm, arms)
        axes.plot(*join_with_nan(runs.values()), lw=1, alpha=0.6, color=shape["color"])
        ends = [points[-1] for points in runs.values()]
        (line,) = axes.plot(*zip(*ends, strict=True), ls="", **shape)
        titles = [
            f"{arm}, seed {seed}: {y:.4g} at step {x:g}"
            for seed, (x, y) in zip(runs, ends, strict=True)
        ]
        add_tooltip(tooltips, line, titles)
    label_axes(axes, panel)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _lines(axes: Axes, panel: Panel, arms: Sequence[str], tooltips: Tooltips) -> None:
    """A line an arm; single runs and lesser trials beside it."""
    for arm in dict.fromkeys(mark.arm for mark in panel.marks):
        shape = arm_style(arm, arms)
        own = [mark for mark in panel.marks if mark.arm == arm]
        single = [mark for mark in own if mark.kind in ("seed", "trial")]
        joined = [mark for mark in own if mark.kind not in ("seed", "trial")]
        for marks, look in (
            (
                single,
                {**shape, "ls": "", "alpha": 0.5, "zorder": 1, **({"ms": 3} if joined else {})},
            ),
            (joined, {**shape, "lw": 1.2}),
        ):
            if not marks:
                continue
            xs, ys = zip(
                *((known_marks(mark.x), known_marks(mark.y)) for mark in marks), strict=True
            )
            (line,) = axes.plot(xs, ys, **look)
            add_tooltip(
                tooltips, line, [f"{arm}, {m.kind} at {m.x:,.6g}: {m.y:.4g}" for m in marks]
            )
    label_axes(axes, panel)
    values = sorted({known_marks(mark.x) for mark in panel.marks})
    if len(values) <= 6:
        axes.set_xticks(values, [f"{value:,.6g}" for value in values])
    elif panel.whole_x:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _scatter(axes: Axes, panel: Panel, arms: Sequence[str], tooltips: Tooltips) -> None:
    """A marker a run; the region beyond the bound is shaded."""
    for arm in dict.fromkeys(mark.arm for mark in panel.marks if mark.kind != BOUND):
        own = [mark for mark in panel.marks if mark.arm == arm]
        points = [(known_marks(mark.x), known_marks(mark.y)) for mark in own]
        (line,) = axes.plot(*zip(*points, strict=True), ls="", alpha=0.75, **arm_style(arm, arms))
        runs = ["mean" if mark.seed is None else f"seed {mark.seed}" for mark in own]
        add_tooltip(
            tooltips,
            line,
            [
                f"{arm}, {run}: {mark.y:.4g} at {mark.x:,.0f}"
                for run, mark in zip(runs, own, strict=True)
            ],
        )
    bound = [
        (known_marks(mark.x), known_marks(mark.y)) for mark in panel.marks if mark.kind == BOUND
    ]
    if bound:
        xs, ys = zip(*bound, strict=True)
        top = 1.04
        axes.fill_between(xs, ys, top, color=BAND, zorder=0, lw=0)
        axes.plot([*xs, xs[-1]], [*ys, top], color=INK, lw=1.2, ls="--", zorder=1)
        axes.set_xlim(xs[0], 2 * max(known_marks(mark.x) for mark in panel.marks))
        axes.set_ylim(-0.04, top)
        axes.annotate(
            "too little\nstate", (0.02, 0.97), xycoords="axes fraction", va="top", size="small"
        )
    label_axes(axes, panel)


FORMS: dict[Form, Callable[[Axes, Panel, Sequence[str], Tooltips], None]] = {
    "differences": _differences,
    "seeds": _seeds,
    "curves": _curves,
    "lines": _lines,
    "scatter": _scatter,
}
