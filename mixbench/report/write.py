"""From records to the report's files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from mixbench.compare.collect import collect
from mixbench.compare.compare import compare
from mixbench.compare.content import StudyReport
from mixbench.core.errors import SettingError
from mixbench.core.files import make_folder, write_bytes, write_json
from mixbench.report.figures import study_plots
from mixbench.report.markdown import markdown
from mixbench.report.marks import Plot
from mixbench.report.terminal import print_report

FORMATS = ("terminal", "json", "md", "html", "plots")


def write_report(
    paths: Sequence[Path],
    out: Path,
    console: Console,
    formats: Sequence[str] = FORMATS,
    baseline: str | None = None,
    idea: str | None = None,
) -> list[StudyReport]:
    """Collect, compare, show and write.

    Args:
        paths: See `collect.collect`.
        out: Folder for `report.html`, `report.json`, `report.md` and `plots/`.
        console: Where the tables go.
        formats: Which of `FORMATS`.
        baseline: The arm to beat, instead of the sweep's.
        idea: The arm on trial, instead of the sweep's.

    Returns:
        The studies, as in `report.json`.

    Raises:
        SettingError: Nothing to report, or `out` cannot be written.
    """
    studies = [compare(study) for study in collect(paths, baseline, idea)]
    if not any(study.tasks for study in studies):
        raise SettingError(
            "report", expected="at least one run with a result", got="unfinished runs only"
        )
    written = [name for name in formats if name != "terminal"]
    if written:
        make_folder(out, key="--out")
    if "terminal" in formats:
        print_report(console, studies)
    if not written:
        return studies
    names = _names(studies)
    figures: list[list[Plot]] = []
    files: list[list[tuple[str, str]]] = []
    if "plots" in formats or "html" in formats:
        figures = [study_plots(study) for study in studies]
    if "plots" in formats:
        # Imported here: matplotlib would double the time to the first table.
        from mixbench.report.plots import draw_plots

        for plots, name in zip(figures, names, strict=True):
            drawn = draw_plots(plots, out / "plots", name)
            files.append([(what, f"plots/{file}") for what, file in drawn])
    if "json" in formats:
        write_json(out / "report.json", {"studies": msgspec.to_builtins(studies)})
    if "md" in formats:
        write_bytes(out / "report.md", markdown(studies, files).encode())
    if "html" in formats:
        from mixbench.report.html import page

        command = _command(paths, baseline, idea)
        text = page(studies, figures, names, command, plot_files="plots" in formats)
        # A path need not be text; what is in records is, see comparison.compare.
        write_bytes(out / "report.html", text.encode(errors="replace"))
    console.print(f"report: {out}", markup=False, highlight=False, soft_wrap=True)
    return studies


def _names(studies: Sequence[StudyReport]) -> list[str]:
    """What each study's plots are called by: the same sweep may be there with other settings."""
    names = [study.name for study in studies]
    return [
        f"{name}-{number}" if names.count(name) > 1 else name for number, name in enumerate(names)
    ]


def _command(paths: Sequence[Path], baseline: str | None, idea: str | None) -> str:
    """What makes the report again, from where it was made."""
    here = Path.cwd()
    shown = [path.relative_to(here) if path.is_relative_to(here) else path for path in paths]
    roles = [f"--{role}={name}" for role, name in (("baseline", baseline), ("idea", idea)) if name]
    return shlex.join(["mixbench", "report", *map(str, shown), *roles])
