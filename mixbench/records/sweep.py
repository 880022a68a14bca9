"""What a sweep's `sweep.json` holds, and its one reader. Never imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mixbench.config.comparison_schema import Role, Search
from mixbench.core.files import bounded_text, strict_json, write_json


class GridRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a grid: what was typed for it, and where its record lies."""

    overrides: list[str] = []
    record: str
    status: str | None = None


class Grid(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="grid"):
    """A grid, listed when it is through."""

    runs: list[GridRun]


class ComparisonRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a comparison, see `sweeps.arms.PlannedRun`, and where its record lies."""

    task: str
    arm: str
    role: Role
    trial: int | None
    ablation: str | None
    values: dict[str, Any]
    seed: int
    overrides: list[str]
    record: str
    identity: str | None = None


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What a report has to know of a comparison beside its runs.

    Attributes:
        tasks: The smallest difference that matters in each; None for the dataset's.
        arms: What each arm inherits, key by key, and from which arm.
        trials: How many configurations each arm tries at first.
        changed: Overrides that change what its YAML describes.
        on_edge: By task and arm, the settings whose best value lies on an edge of a random search.
    """

    title: str
    ideas: list[str]
    baselines: list[str]
    tasks: dict[str, float | None]
    arms: dict[str, dict[str, str]]
    trials: dict[str, int]
    search: Search = "grid"
    unequal_budget: bool
    task_notes: dict[str, str] = {}
    ablations: dict[str, list[str]]
    published: str | None
    source: str | None
    changed: list[str] = []
    on_edge: dict[str, dict[str, list[str]]] = {}


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """What other starts of the same command took for runs that this one found done."""

    wall_seconds: float = 0.0
    launched: int = 0


class Comparison(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="comparison"):
    """A comparison, as far as it has come."""

    name: str
    command: str
    launcher: str = ""
    started: str
    stage: str
    study: Description
    wall_seconds: float | None = None
    launched: int | None = None
    runs: list[ComparisonRun]
    earlier: Earlier = Earlier()

    @property
    def seconds(self) -> float:
        """Wall time of all its starts."""
        return (self.wall_seconds or 0.0) + self.earlier.wall_seconds

    @property
    def trained(self) -> int:
        """Runs that its starts trained, all of them where that is not said."""
        own = len(self.runs) if self.launched is None else self.launched
        return own + self.earlier.launched


def write_sweep(folder: Path, content: Grid | Comparison) -> None:
    """Write a sweep's `sweep.json` in one piece."""
    write_json(folder / _NAME, msgspec.to_builtins(content))


def read_sweep(folder: Path) -> Grid | Comparison | None:
    """What a sweep's `sweep.json` holds; None where there is none, or another program's.

    Raises:
        ValueError: It is one, but not as mixbench writes it.
    """
    try:
        content = strict_json(bounded_text(folder / _NAME))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or not isinstance(content.get("runs"), list):
        return None
    content.setdefault("kind", "grid")  # as they were before there were comparisons
    if content["kind"] != "grid" and not content.keys() >= _COMPARISON_KEYS:
        return None
    return msgspec.convert(content, Grid | Comparison)


_NAME = "sweep.json"


_COMPARISON_KEYS = {each.name for each in msgspec.structs.fields(Comparison) if each.required}
