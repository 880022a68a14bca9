"""The analytic predictions behind spiderweb attention, recomputed from their formulas.

They concern the geometry (cells as heights `y_l = y0 eta^l` in the hyperbolic half-plane), the work
and the reach, and need no training. Everything here is plain Python.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any


def predictions(
    n: int = 256, eta: float = 2.0, y0: float = 0.02, tau: float = 1.0, levels: int = 8
) -> dict[str, Any]:
    """The four published predictions and what the formulas give, for sequences of n positions.

    1. `monotone_distance`: the distance of two positions falls strictly with the level.
    2. `transition`: the level at which it is nearest to tau, against its closed form.
    3. `work_scaling`: work over n log2 n stays within a narrow band while n^2 leaves it.
    4. `communication`: reach and work at n, against dense and local attention.
    """
    distances = [dx / n for dx in (1, 8, 32, 100)]
    sizes = [2**k for k in range(5, 12)]
    parts = [work(size) for size in sizes]
    ratios = [part["work"] / _n_log2_n(size) for size, part in zip(sizes, parts, strict=True)]
    dense = [size**2 / _n_log2_n(size) for size in sizes]
    rows = transition_rows(n, eta, y0, tau, levels)
    errors = [row[3] for row in rows]
    window = 2
    return {
        "settings": {"n": n, "eta": eta, "y0": y0, "tau": tau, "levels": levels},
        "monotone_distance": {
            "dx": distances,
            "confirmed_each": [_falls_with_level(dx, eta, y0, levels) for dx in distances],
        },
        "transition": {
            "mean_abs_level_error": sum(errors) / len(errors),
            "max_abs_level_error": float(max(errors)),
            "fraction_exact": sum(error == 0 for error in errors) / len(errors),
            "rows": rows,
        },
        "work_scaling": {
            "n": sizes,
            "work": [part["work"] for part in parts],
            "work_over_n_log2n": ratios,
            "dense_over_n_log2n": dense,
            "spiderweb_ratio_range": [min(ratios), max(ratios)],
            "dense_ratio_growth": dense[-1] / dense[0],
            "parts": parts,
        },
        "communication": {
            "spiderweb_work": work(n)["work"],
            "dense_attention_scores": n * n,
            "local_attention_scores": n * (2 * window + 1),
            "coverage": {
                "dense": {"reachable_from_middle": n, "mean_reachable": float(n)},
                "local": _coverage(
                    [set(range(max(0, i - window), min(n, i + window + 1))) for i in range(n)]
                ),
                "spiderweb": _coverage(reach(n, levels, eta=2, radius=1)),
            },
        },
    }


def distance(dx: float, y: float) -> float:
    """Hyperbolic distance of two points at height y that lie dx apart."""
    return math.acosh(1 + dx**2 / (2 * y**2))


def transition_rows(
    n: int, eta: float, y0: float, tau: float, levels: int
) -> list[tuple[float, int, int, int]]:
    """For 25 distances dx: dx, the nearest level, the predicted one, and how far they differ."""
    first, last = 1 / n, 0.95
    rows = []
    for i in range(25):
        dx = first + (last - first) * i / 24
        closed = dx / math.sqrt(2 * (math.cosh(tau) - 1))
        predicted = min(max(round(math.log(closed / y0, eta)), 0), levels)
        nearest = min(range(levels + 1), key=lambda level: abs(distance(dx, y0 * eta**level) - tau))
        rows.append((dx, nearest, predicted, abs(predicted - nearest)))
    return rows


def work(n: int, radius: int = 1) -> dict[str, int]:
    """Cells times windows at every level, halving down to one cell, and n broadcasts a level."""
    horizontal, levels, cells = 0, 0, n
    while True:
        horizontal += cells * (2 * min(radius, cells - 1) + 1)
        levels += 1
        if cells == 1:
            break
        cells = math.ceil(cells / 2)
    return {
        "work": horizontal + n * levels,
        "levels": levels,
        "horizontal": horizontal,
        "broadcasts": n * levels,
    }


def reach(n: int, levels: int, eta: int, radius: int, causal: bool = False) -> list[set[int]]:
    """Which input positions each output position can depend on, level by level."""
    seen = [{i} for i in range(n)]
    for level in range(levels + 1):
        size = eta**level
        cells = math.ceil(n / size)
        if not causal:
            inside = [set().union(*seen[c * size : (c + 1) * size]) for c in range(cells)]
            near = [set().union(*inside[max(0, c - radius) : c + radius + 1]) for c in range(cells)]
            seen = [seen[i] | near[i // size] for i in range(n)]
        else:
            # A token takes part from prefix length eta^(level - 1) + 1 on.
            first = 0 if level == 0 else eta ** (level - 1)
            seen = [
                seen[i] | set().union(*seen[max(0, i // size - radius) * size : i + 1])
                if i >= first
                else seen[i]
                for i in range(n)
            ]
    return seen


def _falls_with_level(dx: float, eta: float, y0: float, levels: int) -> bool:
    values = [distance(dx, y0 * eta**level) for level in range(levels + 1)]
    return all(a > b for a, b in pairwise(values))


def _coverage(seen: list[set[int]]) -> dict[str, float]:
    return {
        "reachable_from_middle": len(seen[len(seen) // 2]),
        "mean_reachable": sum(map(len, seen)) / len(seen),
    }


def _n_log2_n(n: int) -> float:
    return n * math.log2(n)
