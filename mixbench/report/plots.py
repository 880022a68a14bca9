"""The report's plots drawn: PNG, SVG and CSV files, and SVG for the page. Needs matplotlib."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from mixbench.records import make_folder, write_bytes
from mixbench.report.figures import BOUND, Form, Mark, Panel, Plot, as_csv, file_name

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#1F1F1F", "#E69F00", "#56B4E9")
"""Okabe and Ito's, which the colour-blind tell apart; each arm has a marker of its own besides."""
MARKERS = "osD^vPX"
INK, MUTED, BAND = "#202124", "#75787B", "#E9EAEC"
"""Of text and axes, of lines behind the marks, and of regions."""

NAMED = ("differences", "seeds")
"""Forms of panels that name the arms beside their marks."""

_SETTINGS: dict[Any, Any] = {
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
_SVG = "{http://www.w3.org/2000/svg}"

# What is told at each marker of a line, by the line's id in the SVG.
Told: TypeAlias = dict[str, list[str]]


def draw_plots(plots: Sequence[Plot], folder: Path, prefix: str) -> list[tuple[str, str]]:
    """Write each plot as PNG and SVG, and its numbers as CSV.

    Args:
        plots: From `figures.study_plots`.
        folder: Where the files go; it is made.
        prefix: Start of their names.

    Returns:
        What each shows, and its files' name without the ending.
    """
    drawn = []
    if plots:
        make_folder(folder, key="--out")
    for plot in plots:
        name = file_name(prefix, plot)
        with _drawing():
            figure = _grid(plot)
            figure.draw_without_rendering()  # once for both files
            figure.set_layout_engine("none")
            # No date or version inside, so that equal data gives equal files.
            for kind, metadata in (
                ("png", {"Software": None}),
                ("svg", {"Date": None, "Creator": None}),
            ):
                out = BytesIO()
                figure.savefig(out, format=kind, dpi=110, metadata=metadata)
                write_bytes(folder / f"{name}.{kind}", out.getvalue())
        write_bytes(folder / f"{name}.csv", as_csv(plot).encode())
        drawn.append((plot.title, name))
    return drawn


def panel_svg(plot: Plot, panel: Panel, prefix: str) -> str:
    """One panel as SVG to be put into a page.

    Its colours are the page's variables `--a0` ... `--a6`, `--ink`, `--muted` and `--band`; its
    text is text; what a marker stands for is its title, which browsers show under the pointer.

    Args:
        plot: The plot that it belongs to.
        panel: The panel.
        prefix: Start of all its ids, which have to be the only ones of their kind in a page.
    """
    with _drawing({"font.size": 10}):
        figure = Figure(figsize=(4.2, 0.9 * _height(panel)), layout=_layout())
        axes = figure.subplots()
        told: Told = {}
        _FORMS[panel.form](axes, panel, plot.arms, told)
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        out = BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return _for_page(out.getvalue(), told, prefix)


@contextmanager
def _drawing(changes: Mapping[Any, Any] | None = None) -> Iterator[None]:
    """Our settings; a letter that the font lacks is a box in a PNG, and nothing to warn of."""
    with warnings.catch_warnings(), matplotlib.rc_context({**_SETTINGS, **(changes or {})}):
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def style(arm: str, arms: Sequence[str]) -> tuple[int, int]:
    """Numbers of an arm's colour and marker; no two of the first 49 arms share both."""
    i = arms.index(arm)
    return i % len(COLOURS), (i + i // len(COLOURS)) % len(MARKERS)


def _grid(plot: Plot) -> Figure:
    """One panel a task, and one legend below them."""
    columns = min(3, len(plot.panels))
    rows = -(-len(plot.panels) // columns)
    height = max(map(_height, plot.panels))
    figure = Figure(figsize=(4.4 * columns + 0.6, height * rows + 0.8), layout=_layout())
    figure.suptitle(plot.title)
    cells = figure.subplots(rows, columns, squeeze=False).flat
    for panel in plot.panels:
        axes = next(cells)
        _FORMS[panel.form](axes, panel, plot.arms, {})
        axes.set_title(_short(panel.task))
    for axes in cells:
        axes.set_axis_off()
    if all(panel.form in NAMED for panel in plot.panels):
        return figure
    shown = {mark.arm for panel in plot.panels for mark in panel.marks}
    handles = [
        Line2D([], [], ls="", label=_short(arm), **_style(arm, plot.arms))
        for arm in plot.arms
        if arm in shown
    ]
    kinds = {mark.kind for panel in plot.panels for mark in panel.marks}
    if "ablation" in kinds:
        handles.append(Line2D([], [], ls="", marker="x", color=MUTED, label="ablations (mean)"))
    if BOUND in kinds:
        handles.append(Line2D([], [], ls="--", color=INK, label=BOUND))
    figure.legend(
        handles,
        [str(handle.get_label()) for handle in handles],
        loc="outside lower center",
        ncols=min(4, len(handles)),
    )
    return figure


def _layout() -> ConstrainedLayoutEngine:
    return ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)


def _height(panel: Panel) -> float:
    """Inches; a comparison takes a line of its own."""
    if panel.form == "differences":
        return 1.3 + 0.55 * len(_pairs(panel))
    return 3.3


def _style(arm: str, arms: Sequence[str]) -> dict[str, Any]:
    if arm not in arms:
        return {"color": MUTED, "marker": "x", "ms": 5}
    colour, marker = style(arm, arms)
    return {"color": COLOURS[colour], "marker": MARKERS[marker], "ms": 4.5}


def _tell(told: Told, line: Line2D, titles: Sequence[str]) -> None:
    """Remember what the markers of a line stand for."""
    line.set_gid(f"told{len(told)}")
    told[f"told{len(told)}"] = list(titles)


def _pairs(panel: Panel) -> list[tuple[str, str]]:
    return list(dict.fromkeys((mark.arm, mark.versus) for mark in panel.marks if mark.versus))


def _differences(axes: Axes, panel: Panel, arms: Sequence[str], told: Told) -> None:
    """A line a comparison: dots above their mean."""
    pairs = _pairs(panel)
    for i, (arm, versus) in enumerate(pairs):
        own = [mark for mark in panel.marks if (mark.arm, mark.versus) == (arm, versus)]
        shape = _style(arm, arms)
        dots = [mark for mark in own if mark.kind == "seed"]
        spread = [i - 0.12 - 0.2 * (j % 2) for j in range(len(dots))]
        xs = [_known(mark.x) for mark in dots]
        (line,) = axes.plot(xs, spread, ls="", **{**shape, "marker": "o"}, alpha=0.75)
        _tell(told, line, [f"seed {mark.seed}: {mark.x:+.4g}" for mark in dots])
        for mark in own:
            if mark.kind != "mean":
                continue
            d = _known(mark.x)
            if mark.low is not None and mark.high is not None:
                axes.plot([mark.low, mark.high], [i + 0.16] * 2, color=shape["color"], lw=2)
            (line,) = axes.plot([d], [i + 0.16], ls="", **{**shape, "marker": "s", "ms": 6})
            _tell(told, line, [f"{arm} vs {versus}: {_spread(d, mark)}"])
    for mark in panel.marks:
        if mark.kind == "margin":
            axes.axvspan(_known(mark.low), _known(mark.high), color=BAND, zorder=0, lw=0)
    axes.axvline(0, color=MUTED, lw=0.8, zorder=1)
    axes.set_yticks(
        range(len(pairs)), [f"{_short(arm)}\nvs {_short(versus)}" for arm, versus in pairs]
    )
    axes.tick_params("y", length=0)
    axes.set_ylim(len(pairs) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(panel.x_label)


def _seeds(axes: Axes, panel: Panel, arms: Sequence[str], told: Told) -> None:
    """An arm a column; a line joins equal seeds."""
    names = list(dict.fromkeys(mark.arm for mark in panel.marks))
    dots = [mark for mark in panel.marks if mark.kind == "seed"]
    seeds: dict[int | None, list[tuple[float, float]]] = {}
    for mark in dots:
        seeds.setdefault(mark.seed, []).append((names.index(mark.arm), _known(mark.y)))
    axes.plot(*_apart(seeds.values()), color=MUTED, lw=0.7, alpha=0.6, zorder=1)
    for i, name in enumerate(names):
        shape = _style(name, arms)
        own = [mark for mark in dots if mark.arm == name]
        ys = [_known(mark.y) for mark in own]
        (line,) = axes.plot([i] * len(own), ys, ls="", alpha=0.75, **shape)
        _tell(told, line, [f"{name}, seed {mark.seed}: {mark.y:.4g}" for mark in own])
        for mark in panel.marks:
            if (mark.arm, mark.kind) == (name, "mean"):
                _mean(axes, i + 0.2, mark, shape, told)
    axes.set_xticks(range(len(names)), [_folded(name) for name in names])
    axes.set_xlim(-0.5, len(names) - 0.4)
    axes.set_ylabel(panel.y_label)


def _mean(axes: Axes, x: float, mark: Mark, shape: Mapping[str, Any], told: Told) -> None:
    y = _known(mark.y)
    if mark.low is not None and mark.high is not None:
        axes.plot([x, x], [mark.low, mark.high], color=shape["color"], lw=2)
    (line,) = axes.plot([x], [y], ls="", **{**shape, "ms": 6})
    _tell(told, line, [f"{mark.arm}, mean: {_spread(y, mark)}"])


def _curves(axes: Axes, panel: Panel, arms: Sequence[str], told: Told) -> None:
    for arm in dict.fromkeys(mark.arm for mark in panel.marks):
        runs: dict[int | None, list[tuple[float, float]]] = {}
        for mark in panel.marks:
            if mark.arm == arm:
                runs.setdefault(mark.seed, []).append((_known(mark.x), _known(mark.y)))
        shape = _style(arm, arms)
        axes.plot(*_apart(runs.values()), lw=1, alpha=0.6, color=shape["color"])
        ends = [points[-1] for points in runs.values()]
        (line,) = axes.plot(*zip(*ends, strict=True), ls="", **shape)
        titles = [
            f"{arm}, seed {seed}: {y:.4g} at step {x:g}"
            for seed, (x, y) in zip(runs, ends, strict=True)
        ]
        _tell(told, line, titles)
    _label(axes, panel)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _lines(axes: Axes, panel: Panel, arms: Sequence[str], told: Told) -> None:
    """A line an arm; single runs and lesser trials beside it."""
    for arm in dict.fromkeys(mark.arm for mark in panel.marks):
        shape = _style(arm, arms)
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
            xs, ys = zip(*((_known(mark.x), _known(mark.y)) for mark in marks), strict=True)
            (line,) = axes.plot(xs, ys, **look)
            _tell(told, line, [f"{arm}, {m.kind} at {m.x:,.6g}: {m.y:.4g}" for m in marks])
    _label(axes, panel)
    values = sorted({_known(mark.x) for mark in panel.marks})
    if len(values) <= 6:
        axes.set_xticks(values, [f"{value:,.6g}" for value in values])
    elif panel.whole_x:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _scatter(axes: Axes, panel: Panel, arms: Sequence[str], told: Told) -> None:
    """A marker a run; the region beyond the bound is shaded."""
    for arm in dict.fromkeys(mark.arm for mark in panel.marks if mark.kind != BOUND):
        own = [mark for mark in panel.marks if mark.arm == arm]
        points = [(_known(mark.x), _known(mark.y)) for mark in own]
        (line,) = axes.plot(*zip(*points, strict=True), ls="", alpha=0.75, **_style(arm, arms))
        runs = ["mean" if mark.seed is None else f"seed {mark.seed}" for mark in own]
        _tell(
            told,
            line,
            [
                f"{arm}, {run}: {mark.y:.4g} at {mark.x:,.0f}"
                for run, mark in zip(runs, own, strict=True)
            ],
        )
    bound = [(_known(mark.x), _known(mark.y)) for mark in panel.marks if mark.kind == BOUND]
    if bound:
        xs, ys = zip(*bound, strict=True)
        top = 1.04
        axes.fill_between(xs, ys, top, color=BAND, zorder=0, lw=0)
        axes.plot([*xs, xs[-1]], [*ys, top], color=INK, lw=1.2, ls="--", zorder=1)
        axes.set_xlim(xs[0], 2 * max(_known(mark.x) for mark in panel.marks))
        axes.set_ylim(-0.04, top)
        axes.annotate(
            "too little\nstate", (0.02, 0.97), xycoords="axes fraction", va="top", size="small"
        )
    _label(axes, panel)


def _label(axes: Axes, panel: Panel) -> None:
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


_FORMS: dict[Form, Callable[[Axes, Panel, Sequence[str], Told], None]] = {
    "differences": _differences,
    "seeds": _seeds,
    "curves": _curves,
    "lines": _lines,
    "scatter": _scatter,
}


def _apart(lines: Iterable[Sequence[tuple[float, float]]]) -> tuple[list[float], list[float]]:
    """Several lines as one that is broken between them."""
    points = [point for line in lines for point in (*line, (math.nan, math.nan))]
    return [x for x, _ in points], [y for _, y in points]


def _known(value: float | None) -> float:
    assert value is not None
    return value


def _spread(mean: float, mark: Mark) -> str:
    ends = "" if mark.low is None else f", 95 % interval {mark.low:.4g} to {mark.high:.4g}"
    return f"{mean:.4g}{ends}"


def _short(name: str) -> str:
    """A name that leaves room for the plot; tables have all of it."""
    return name if len(name) <= 28 else f"{name[:14]}\N{HORIZONTAL ELLIPSIS}{name[-12:]}"


def _folded(name: str) -> str:
    """A name in lines short enough for an axis."""
    return re.sub(r"(?<=.{6})[_ ]", lambda found: f"{found[0].strip()}\n", _short(name))


def _for_page(svg: bytes, told: Told, prefix: str) -> str:
    """Matplotlib's SVG without what belongs to a file of its own, in the page's colours."""
    root = ElementTree.fromstring(svg)
    for drop in (f"{_SVG}metadata", f"{_SVG}style"):
        for parent in root.iter():
            for child in parent.findall(drop):
                parent.remove(child)
    for gid, titles in told.items():
        (group,) = root.iterfind(f".//{_SVG}g[@id='{gid}']")
        markers = list(group.iter(f"{_SVG}use"))
        for marker, title in zip(markers, titles, strict=True):
            ElementTree.SubElement(marker, "title").text = title
        styles = {marker.attrib.pop("style", "") for marker in markers}
        if len(styles) == 1:  # said once for all
            group.set("style", styles.pop())
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        attributes = {
            key.rpartition("}")[2]: _rounded(key, value) for key, value in element.attrib.items()
        }
        element.attrib.clear()
        element.attrib.update(attributes)
        if "style" in attributes:
            element.set("style", _themed(attributes["style"]))
    used = set()
    for element in root.iter():
        for key in ("href", "clip-path"):
            found = re.search(r"#([\w-]+)", element.get(key, ""))
            if found:
                used.add(found[1])
                element.set(key, element.get(key, "").replace("#", f"#{prefix}-"))
    for element in root.iter():
        name = element.attrib.pop("id", None)
        if name in used:
            element.set("id", f"{prefix}-{name}")
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib.clear()
    root.attrib.update({"viewBox": f"0 0 {width} {height}", "aria-hidden": "true"})
    return ElementTree.tostring(root, encoding="unicode")


def _rounded(key: str, value: str) -> str:
    """Coordinates to a hundredth of a point."""
    if key in ("d", "x", "y", "transform"):
        return re.sub(r"(\.\d\d)\d+", r"\1", value)
    return value


def _themed(style: str) -> str:
    return re.sub(r"#[0-9a-f]{6}", lambda found: _VARIABLES.get(found[0], found[0]), style)


_VARIABLES = {
    **{colour.lower(): f"var(--a{i})" for i, colour in enumerate(COLOURS)},
    INK.lower(): "var(--ink)",
    MUTED.lower(): "var(--muted)",
    BAND.lower(): "var(--band)",
}
