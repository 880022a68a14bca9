"""The report as one page for a browser, which fetches nothing. Never imports torch.

`page.html` is its template and `page.css` its style. The template escapes whatever it is given, for
records may come from strangers; what is not escaped is our own style and the SVG that matplotlib
wrote, which escapes by itself.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mixbench import __version__
from mixbench.compare.content import StudyReport, TaskReport
from mixbench.compare.verdicts import warnings
from mixbench.report.canvas import MARKERS, NAMED, style
from mixbench.report.detail_tables import (
    configuration_tables,
    environment_table,
    seeds_table,
    signature_table,
)
from mixbench.report.format import TextTable
from mixbench.report.marks import BOUND, Plot, as_csv, file_name
from mixbench.report.plots import panel_svg
from mixbench.report.tables import (
    ablations_table,
    analysis_table,
    budget_table,
    comparisons_table,
    costs_table,
    gaps_table,
    losses_table,
    probes_table,
    scores_table,
    trials_table,
)

_FOLDER = Path(__file__).parent


_NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?%?( [\[(].*)?|\[.*\]|-|worst|missing|")


_SHAPES = {
    "o": "M5 1.2a3.8 3.8 0 1 0 .01 0z",
    "s": "M1.6 1.6h6.8v6.8H1.6z",
    "D": "M5 .8 9.2 5 5 9.2.8 5z",
    "^": "M5 1 9.3 8.6H.7z",
    "v": "M5 9 .7 1.4h8.6z",
    "P": "M3.4 1h3.2v2.4H9v3.2H6.6V9H3.4V6.6H1V3.4h2.4z",
    "X": "M3 1l2 2 2-2 2 2-2 2 2 2-2 2-2-2-2 2-2-2 2-2-2-2z",
}
"""Matplotlib's markers in a square of 10."""


@dataclass(frozen=True)
class Drawing:
    """A plot on the page.

    Attributes:
        panels: Task, description and SVG of each panel.
        legend: Name, colour number and marker path of each arm; empty where the axes name them.
        ablations: Whether ablations are drawn.
        bound: Whether the information bound is.
        csv: Its numbers as a `data:` address.
    """

    title: str
    about: str
    name: str
    panels: tuple[tuple[str, str, Markup], ...]
    legend: tuple[tuple[str, int, str], ...]
    ablations: bool
    bound: bool
    csv: str


def page(
    studies: Sequence[StudyReport],
    plots: Sequence[Sequence[Plot]],
    names: Sequence[str],
    command: str,
    plot_files: bool,
) -> str:
    """Studies as HTML.

    Args:
        studies: The studies.
        plots: Each study's plots.
        names: How each study's plots are called in file names.
        command: What makes this report again.
        plot_files: Whether the plots lie in files beside the page.
    """
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        css=Markup((_FOLDER / "page.css").read_text()),
        studies=[
            {
                **msgspec.structs.asdict(study),
                "shown_verdicts": [verdict for task in study.tasks for verdict in task.verdicts],
                "warnings": warnings(study),
                "drawings": _drawings(drawn, f"s{i}", name),
                "retries": _retries(study),
                "environment_table": environment_table(study),
            }
            for i, (study, drawn, name) in enumerate(zip(studies, plots, names, strict=True))
        ],
        command=command,
        plot_files=plot_files,
        sections=_SECTIONS,
        shown=_shown,
        configurations=configuration_tables,
        numeric=_numeric,
        version=__version__,
    )


# Anchors and names, as the page's own navigation shows them.
_SECTIONS = (
    ("comparison", "Comparison"),
    ("plots", "Plots"),
    ("signatures", "Signatures"),
    ("seeds", "Seeds"),
    ("failures", "Failures"),
    ("configuration", "Configuration"),
    ("machine", "Machine"),
    ("rerun", "Run it again"),
)


# Tables by the section of the page that they stand in.
_TABLES = {
    "comparison": (scores_table, comparisons_table, costs_table, analysis_table, probes_table),
    "ablations": (ablations_table,),
    "selection": (trials_table, budget_table),
    "signatures": (signature_table,),
    "seeds": (seeds_table,),
    "failures": (losses_table, gaps_table),
}


def _shown(task: TaskReport, section: str) -> list[TextTable]:
    """A task's tables for a section; one without a result has its gaps only."""
    if task.metric is None and section != "failures":
        return []
    return [table for table in (make(task) for make in _TABLES[section]) if table.rows]


def _numeric(table: TextTable) -> list[bool]:
    """Whether a column holds numbers, which stand to the right."""
    return [
        all(_NUMBER.fullmatch(row[i]) for row in table.rows) and any(row[i] for row in table.rows)
        for i in range(len(table.columns))
    ]


def _retries(study: StudyReport) -> list[str]:
    """Commands that make what is missing."""
    commands = [
        command for task in study.tasks for each in task.comparisons for command in each.commands
    ]
    lost = any(
        run.status in ("failed", "missing")
        for task in study.tasks
        for runs in itertools.chain(
            (arm.lost for arm in task.arms), (each.lost for each in task.ablations)
        )
        for run in runs
    )
    if lost and study.planned:
        commands.append(f"{study.command} rerun=failed")
    return list(dict.fromkeys(commands))


def _drawings(plots: Sequence[Plot], prefix: str, name: str) -> list[Drawing]:
    drawings = []
    for number, plot in enumerate(plots):
        shown = {mark.arm for panel in plot.panels for mark in panel.marks}
        kinds = {mark.kind for panel in plot.panels for mark in panel.marks}
        arms = [arm for arm in plot.arms if arm in shown]
        named = all(panel.form in NAMED for panel in plot.panels)
        drawings.append(
            Drawing(
                title=plot.title,
                about=plot.about,
                name=file_name(name, plot),
                panels=tuple(
                    (
                        panel.task,
                        f"{plot.title}, {panel.task or 'all tasks'}: {', '.join(arms)}; "
                        "the numbers are in the CSV",
                        Markup(panel_svg(plot, panel, f"{prefix}p{number}-{i}")),
                    )
                    for i, panel in enumerate(plot.panels)
                ),
                legend=() if named else tuple(_legend(arm, plot.arms) for arm in arms),
                ablations="ablation" in kinds,
                bound=BOUND in kinds,
                csv=f"data:text/csv;charset=utf-8,{quote(as_csv(plot), safe=',')}",
            )
        )
    return drawings


def _legend(arm: str, arms: Sequence[str]) -> tuple[str, int, str]:
    colour, marker = style(arm, arms)
    return arm, colour, _SHAPES[MARKERS[marker]]
