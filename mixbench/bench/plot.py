"""The bench's plot: time of a sequence against its length, both logarithmic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from mixbench.bench.rows import Row


def draw_growth(
    rows: Sequence[Row], fits: Mapping[tuple[str, str, int], float], path: Path
) -> None:
    """A panel for ops and one for mixers: forward and backward, with the fewest threads.

    Args:
        rows: All measurements.
        fits: Exponents by (name, what, threads), see `exponents`.
        path: The PNG file.
    """
    parts = [part for part in ("ops", "mixers") if any(row.part == part for row in rows)]
    figure = Figure(figsize=(7 * len(parts), 5), layout="constrained")
    what = "forward+backward"
    for axes, part in zip(figure.subplots(1, len(parts), squeeze=False)[0], parts, strict=True):
        threads = min(row.threads for row in rows if row.part == part)
        chosen = [r for r in rows if (r.part, r.what, r.threads) == (part, what, threads)]
        for name in dict.fromkeys(row.name for row in chosen):
            points = [(r.size, r.seconds.median / r.batch) for r in chosen if r.name == name]
            slope = fits.get((name, what, threads))
            label = name if slope is None else f"{name}: T^{slope:.2f}"
            axes.loglog(*zip(*sorted(points), strict=True), "o-", ms=4, label=label)
        axes.set_title(f"{part}, {what}, threads {threads}")
        axes.set_xlabel("sequence length T")
        axes.set_ylabel("seconds a sequence")
        axes.legend(fontsize="x-small")
    figure.savefig(path, dpi=110)
