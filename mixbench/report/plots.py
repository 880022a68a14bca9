"""The report's plots drawn: PNG, SVG and CSV files, and SVG for the page. Needs matplotlib."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from mixbench.core.files import make_folder, write_bytes
from mixbench.report.canvas import (
    INK,
    MUTED,
    NAMED,
    RC_SETTINGS,
    Tooltips,
    arm_style,
    paired_arms,
    short_label,
)
from mixbench.report.forms import FORMS
from mixbench.report.marks import BOUND, Panel, Plot, as_csv, file_name
from mixbench.report.svg import themed_svg


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
        tooltips: Tooltips = {}
        FORMS[panel.form](axes, panel, plot.arms, tooltips)
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        out = BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return themed_svg(out.getvalue(), tooltips, prefix)


@contextmanager
def _drawing(changes: Mapping[Any, Any] | None = None) -> Iterator[None]:
    """Our settings; a letter that the font lacks is a box in a PNG, and nothing to warn of."""
    with warnings.catch_warnings(), matplotlib.rc_context({**RC_SETTINGS, **(changes or {})}):
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


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
        FORMS[panel.form](axes, panel, plot.arms, {})
        axes.set_title(short_label(panel.task))
    for axes in cells:
        axes.set_axis_off()
    if all(panel.form in NAMED for panel in plot.panels):
        return figure
    shown = {mark.arm for panel in plot.panels for mark in panel.marks}
    handles = [
        Line2D([], [], ls="", label=short_label(arm), **arm_style(arm, plot.arms))
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
        return 1.3 + 0.55 * len(paired_arms(panel))
    return 3.3
