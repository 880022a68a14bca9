"""What a plot is made of, and its CSV. Never imports torch or matplotlib."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Form = Literal["differences", "seeds", "curves", "lines", "scatter"]


COLUMNS = ("task", "arm", "versus", "kind", "seed", "x", "y", "low", "high")
"""Of a plot's CSV; what does not apply is empty."""


BOUND = "information bound"


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
            writer.writerow(
                [*map(_escape_csv_formula, texts), *("" if n is None else repr(n) for n in numbers)]
            )
    return out.getvalue()


def _escape_csv_formula(text: str) -> str:
    """Text that no spreadsheet takes for a formula: records may come from strangers."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def is_shown(mark: Mark) -> bool:
    """Whether it is more than what lies behind others."""
    return mark.kind not in ("margin", BOUND)
