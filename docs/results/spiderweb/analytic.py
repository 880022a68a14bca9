"""`python docs/results/spiderweb/analytic.py`: spiderweb's published predictions, recomputed."""

from __future__ import annotations

import argparse
from pathlib import Path

from mixbench.core.files import make_folder, write_bytes
from mixbench.display.console import make_console
from mixbench.mixers.parts.spiderweb_theory import predictions
from mixbench.report.format import TextTable
from mixbench.report.markdown import table_lines
from mixbench.report.terminal import text_table


def analytic_table() -> TextTable:
    """The four published predictions (n 256, eta 2, y0 0.02, tau 1, L 8) and what comes out."""
    found = predictions()
    falls = found["monotone_distance"]["confirmed_each"]
    transition = found["transition"]
    exact = sum(row[3] == 0 for row in transition["rows"])
    work = found["work_scaling"]
    low, high = work["spiderweb_ratio_range"]
    reach = found["communication"]
    cover = reach["coverage"]
    rows = [
        (
            "distance falls strictly with the level, at 4 distances",
            "4 of 4",
            f"{sum(falls)} of {len(falls)}",
        ),
        (
            "level nearest to tau is the closed form's, at 25 distances",
            "24 exact, mean error 0.04, largest 1",
            f"{exact} exact, mean error {transition['mean_abs_level_error']:.2f}, "
            f"largest {transition['max_abs_level_error']:.0f}",
        ),
        ("work over n log2 n, n 32 to 2048", "1.636 to 2.369", f"{low:.3f} to {high:.3f}"),
        (
            "growth of n^2 over n log2 n on the way",
            "29.1-fold",
            f"{work['dense_ratio_growth']:.1f}-fold",
        ),
        (
            "spiderweb at n 256: tokens reached, work",
            "256, 3,835",
            f"{cover['spiderweb']['reachable_from_middle']}, {reach['spiderweb_work']:,}",
        ),
        (
            "dense attention: tokens reached, scores",
            "256, 65,536",
            f"{cover['dense']['reachable_from_middle']}, {reach['dense_attention_scores']:,}",
        ),
        (
            "window of 2: tokens reached, scores",
            "5, 1,280",
            f"{cover['local']['reachable_from_middle']}, {reach['local_attention_scores']:,}",
        ),
    ]
    return TextTable(
        "spiderweb's analytic predictions, untrained", ("prediction", "published", "here"), rows
    )


def main() -> None:
    """Print the table, and write it as Markdown if asked."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, help="a Markdown file to write")
    out = parser.parse_args().out
    table = analytic_table()
    make_console().print(text_table(table))
    if out is not None:
        make_folder(out.parent, key="--out")
        write_bytes(out, "\n".join(table_lines(table)).encode())


if __name__ == "__main__":
    main()
