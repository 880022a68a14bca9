"""A comparison's arms and tasks, and the runs that are planned of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from mixbench.config.comparison_schema import Role, Search
from mixbench.core.errors import SettingError, at_least, nearest
from mixbench.core.overrides import as_override, flat
from mixbench.records.folder import RunFolder, relative_record
from mixbench.records.sweep import ComparisonRun
from mixbench.sweeps.search import Space, draw, space


@dataclass(frozen=True)
class PlannedRun:
    """One configuration and one seed, and what it is for.

    Attributes:
        task: Name of its task.
        arm: Name of its arm; of the ablated arm for an ablation.
        role: `selection`, `evaluation` or `ablation`.
        trial: Number of the trial within its arm; None for an ablation.
        ablation: Name of the ablation, or None.
        values: What distinguishes the trial: its grid's values and the inherited ones.
        seed: The run's seed.
        overrides: All that it is, in Hydra's words.
    """

    task: str
    arm: str
    role: Role
    trial: int | None
    ablation: str | None
    values: Mapping[str, Any]
    seed: int
    overrides: tuple[str, ...]

    def listed(self, folder: RunFolder) -> ComparisonRun:
        """As `sweep.json` lists it."""
        return ComparisonRun(
            task=self.task,
            arm=self.arm,
            role=self.role,
            trial=self.trial,
            ablation=self.ablation,
            values=dict(self.values),
            seed=self.seed,
            overrides=list(self.overrides),
            record=relative_record(folder),
            identity=folder.identity,
        )


@dataclass(frozen=True)
class Arm:
    """A checked arm; `trials` are its configurations, without inherited values.

    `space` is empty where they are all of a grid.
    """

    name: str
    mixer: str
    overrides: tuple[str, ...]
    trials: tuple[dict[str, Any], ...]
    space: Space
    inherit: Mapping[str, str]

    @property
    def searched(self) -> list[str]:
        """The settings that its trials vary."""
        return list(self.trials[0])


@dataclass(frozen=True)
class Task:
    """A checked task."""

    name: str
    overrides: tuple[str, ...]
    margin: float | None
    ablations: bool
    note: str


def inherited(arm: Arm, chosen: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The values that an arm takes over from other arms' chosen trials."""
    return {key: chosen[other][key] for key, other in arm.inherit.items()}


def keys_of(schema: type[Any]) -> list[str]:
    return [each.name for each in fields(schema)]


@dataclass(frozen=True)
class SearchPlan:
    """How arms come by their trials: `trials` is None for a grid."""

    kind: Search
    trials: int | None
    seed: int
    extensions: int

    @property
    def where(self) -> str:
        """The key of an arm that says what is tried."""
        return "grid" if self.trials is None else "space"

    @staticmethod
    def of(node: Mapping[str, Any]) -> SearchPlan:
        kind, trials, extensions = node["search"], node["trials"], node["extensions"]
        if kind not in ("grid", "random"):
            raise SettingError(
                "sweep.search", expected="grid or random", got=kind,
                fix=nearest(str(kind), ("grid", "random")),
            )  # fmt: skip
        if kind == "grid" and trials is not None:
            fix = "sweep.search=random draws that many"
            raise SettingError("sweep.trials", expected="none with a grid", got=trials, fix=fix)
        if kind == "random" and (trials is None or trials < 1):
            raise SettingError(
                "sweep.trials", expected="how many configurations every arm tries", got=trials
            )
        at_least("sweep.extensions", extensions, 0)
        return SearchPlan(kind, trials, node["search_seed"], extensions)


def arm_from_schema(name: str, node: Mapping[str, Any], search: SearchPlan) -> Arm:
    place = f"sweep.arms.{name}"
    if not node["mixer"]:
        raise SettingError(f"{place}.mixer", expected="a choice of the mixer group", got="nothing")
    other = "space" if search.trials is None else "grid"
    for key in (other, *(["inherit"] if search.trials is not None else [])):
        if node[key]:
            raise SettingError(
                f"{place}.{key}",
                expected=f"{search.where} with sweep.search={search.kind}",
                got=key,
            )
    if search.trials is None:
        trials, ranges = _combinations(place, node["grid"]), {}
    else:
        ranges = space(f"{place}.space", node["space"])
        trials = draw(f"{place}.space", ranges, search.trials, search.seed, 0)
    inherit = flat(node["inherit"])
    return Arm(name, node["mixer"], tuple(node["overrides"]), tuple(trials), ranges, inherit)


def _combinations(place: str, node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All combinations of a grid's values."""
    grid = {}
    for key, values in flat(node).items():
        if not isinstance(values, (list, tuple)) or not values:
            raise SettingError(
                f"{place}.grid.{key}", expected="a list of values to try", got=values
            )
        if len({as_override(value) for value in values}) < len(values):
            raise SettingError(f"{place}.grid.{key}", expected="different values", got=list(values))
        grid[key] = tuple(values)
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def extension_size(arm: Arm) -> int:
    """How many trials an extension of a random search adds to an arm."""
    return math.ceil(len(arm.trials) / 2)
