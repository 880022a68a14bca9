"""The report on a terminal, with rich. Never imports torch."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from mixbench.compare.content import StudyReport
from mixbench.report.format import TextTable
from mixbench.report.tables import task_tables

_STYLES = {
    "beats": "bold green",
    "not beaten": "bold yellow",
    "inconclusive": "bold",
    "saturated": "bold",
    "incomplete": "bold red",
}


def print_report(console: Console, studies: Sequence[StudyReport]) -> None:
    """Print studies, verdicts first."""
    for study in studies:
        console.print(_verdicts(study))
        for task in study.tasks:
            for table in task_tables(task):
                console.print(text_table(table))
                if table.note:
                    _line(console, table.note)
                console.print()


def _verdicts(study: StudyReport) -> Panel:
    text = Text()
    for note in study.notes:
        text.append(f"note: {note}\n", style="yellow")
    if study.stage != "finished":
        text.append(f"unfinished: stopped in the stage {study.stage}\n", style="red")
    for task in study.tasks:
        for verdict in task.verdicts:
            text.append(verdict.headline + "\n", style=_STYLES[verdict.outcome])
    if study.published is not None:
        source = f" ({study.source})" if study.source else ""
        text.append(f"published: {study.published}{source}\n")
    if not text:
        text.append("no comparison: fewer than two arms\n")
    text.rstrip()
    return Panel(text, title=Text(study.title or study.name), title_align="left")


def text_table(content: TextTable) -> Table:
    """Rows of text as a table for the terminal."""
    table = Table(title=Text(content.title), title_justify="left", box=box.SIMPLE_HEAD)
    for column in content.columns:
        table.add_column(Text(column), overflow="fold")
    for number, row in enumerate(content.rows):
        table.add_row(*map(Text, row), style="red" if number in content.flagged else None)
    return table


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
