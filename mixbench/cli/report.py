"""`mixbench report PATH...`: from records to the comparison, without training anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mixbench.core.errors import Parser, RunsFailed, some_of
from mixbench.display.console import make_console
from mixbench.report.write import FORMATS, write_report


def main(arguments: Sequence[str]) -> None:
    """Entry point of `mixbench report`.

    Raises:
        SettingError: Wrong arguments, or nothing to report.
        RunsFailed: Some comparison lacks runs; the report, which names them, was made all the same.
    """
    parser = Parser(prog="mixbench report", description=__doc__.partition(": ")[2])
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        type=Path,
        default=[Path("outputs")],
        help="sweep folders, run folders, or folders of them (default: outputs)",
    )
    parser.add_argument("--baseline", help="the arm to beat")
    parser.add_argument("--idea", help="the arm on trial")
    parser.add_argument(
        "--format",
        default=",".join(FORMATS),
        help=f"some of {','.join(FORMATS)} (default: all)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for report.html, report.json, report.md and plots (default: first PATH)",
    )
    given = parser.parse_args(list(arguments))
    formats = some_of("--format", given.format.split(","), FORMATS)
    first: Path = given.paths[0]
    out = given.out or (first.parent if first.is_file() else first)
    studies = write_report(given.paths, out, make_console(), formats, given.baseline, given.idea)
    comparisons = [each for study in studies for task in study.tasks for each in task.comparisons]
    without = [each for each in comparisons if each.outcome == "incomplete"]
    if without:
        gaps = sum(len(each.gaps) for each in without)
        raise RunsFailed(
            f"{len(without)} of {len(comparisons)} comparisons have no verdict: "
            f"{gaps} runs are missing or failed"
            if gaps
            else f"{len(without)} of {len(comparisons)} comparisons have not been evaluated"
        )
