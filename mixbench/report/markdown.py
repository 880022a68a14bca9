"""The report as Markdown that reads well on a code host. Never imports torch."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mixbench.compare.content import StudyReport
from mixbench.report.format import TextTable
from mixbench.report.tables import task_tables


def markdown(studies: Sequence[StudyReport], plots: Sequence[Sequence[tuple[str, str]]]) -> str:
    """Studies, verdicts first.

    Args:
        studies: The studies.
        plots: Each study's plots as (what it shows, relative path without the ending); may be empty
            for none at all.
    """
    lines = []
    for study, drawn in zip(studies, plots or [()] * len(studies), strict=True):
        lines += [f"# {escape(study.title or study.name)}", ""]
        lines += [f"> {escape(note)}\n" for note in study.notes]
        if study.stage != "finished":
            lines += [f"> unfinished: stopped in the stage {study.stage}", ""]
        for task in study.tasks:
            lines += [f"**{escape(v.headline)}**\n" for v in task.verdicts]
        if study.published is not None:
            source = f" ({escape(study.source)})" if study.source else ""
            lines += [f"Published: {escape(study.published)}{source}.", ""]
        if study.command:
            lines += ["    " + " ".join(study.command.split()), ""]
        lines += [_environment(study), ""]
        for task in study.tasks:
            lines += [f"## {escape(task.name)}", ""]
            for table in task_tables(task):
                lines += table_lines(table)
        if drawn:
            lines += ["## Plots", ""]
            for what, path in drawn:
                lines += [f"![{escape(what)}]({path}.png)", ""]
                lines += [f"[SVG]({path}.svg), [numbers]({path}.csv)", ""]
    return "\n".join(lines).rstrip() + "\n"


def escape(text: str) -> str:
    """Text without meaning to Markdown or HTML: records may come from strangers."""
    text = re.sub(r"([\\`*_\[\]|#])", r"\\\1", text)
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())


def _environment(study: StudyReport) -> str:
    found = study.environment
    parts = [f"{count} {status} runs" for status, count in found.runs.items()]
    for key, name in (
        ("system", "on"),
        ("cpus", "CPUs"),
        ("cpu", "CPU"),
        ("cpu_capability", "CPU instructions"),
        ("gpu", "GPU"),
        ("device", "device"),
        ("threads", "threads a run"),
        ("torch", "PyTorch"),
        ("python", "Python"),
        ("mixbench", "mixbench"),
        ("code_version", "code"),
    ):
        if found.found.get(key):
            parts.append(f"{name} {' and '.join(found.found[key])}")
    if found.first_started:
        parts.append(f"started {found.first_started} to {found.last_started}")
    if study.wall_seconds is not None:
        parts.append(f"wall time {study.wall_seconds / 60:.1f} minutes, for {study.launched} runs")
    return escape("; ".join(parts)) + "."


def table_lines(table: TextTable) -> list[str]:
    """Rows of text as a Markdown table, its title above it."""
    lines = [f"{escape(table.title[0].upper() + table.title[1:])}:", ""]
    lines += [_row(table.columns), _row(["---"] * len(table.columns), escaped=True)]
    lines += [_row(row) for row in table.rows]
    lines += ["", f"{escape(table.note)}", ""] if table.note else [""]
    return lines


def _row(cells: Sequence[str], escaped: bool = False) -> str:
    return f"| {' | '.join(cell if escaped else escape(cell) for cell in cells)} |"
