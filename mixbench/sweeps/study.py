"""A comparison's description and the runs that it asks for. Never imports torch.

A sweep YAML holds the description under `sweep`: tasks, arms with their grids, seeds and margin.
`Study` checks it, and lists the runs of its stages. Words are those of the design: an *arm* is one
contender, a *trial* one configuration of it, *selection seeds* choose among trials by validation,
*evaluation seeds* judge the chosen ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mixbench.config.comparison_schema import (
    ABLATION,
    EVALUATION,
    FIRST_EVALUATION_SEED,
    SELECTION,
    ComparisonSchema,
    Role,
)
from mixbench.core.errors import SettingError, at_least, nearest, unknown_key
from mixbench.core.overrides import as_override, override_key
from mixbench.records.sweep import Description
from mixbench.sweeps.arms import (
    Arm,
    PlannedRun,
    SearchPlan,
    Task,
    arm_from_schema,
    extension_size,
    inherited,
    keys_of,
)
from mixbench.sweeps.search import Space, draw, extended

# Which run it is; and what all arms of a task have to share to be paired by seed.
_ROLES = ("mixer", "mixer._target_", "seed", "test", "sweep")


_PAIRED = (*_ROLES, "dataset", "batch_size", "epochs", "steps")


class Study:
    """A checked comparison.

    Args:
        name: What it is called: the choice of the `sweep` group.
        node: The resolved content of `sweep`, with the keys of `ComparisonSchema`.
        dataset: Name of the one task where the description names none.

    Raises:
        SettingError: The description is wrong; the key is named in full.
    """

    def __init__(self, name: str, node: Mapping[str, Any], dataset: str) -> None:
        self.name = name
        for key in node:
            if key not in keys_of(ComparisonSchema):
                raise unknown_key(f"sweep.{key}", keys_of(ComparisonSchema))
        self.title = str(node["title"])
        self.published: str | None = node["published"]
        self.source: str | None = node["source"]
        self.search = SearchPlan.of(node)
        self.arms = {
            str(name): arm_from_schema(str(name), arm, self.search)
            for name, arm in node["arms"].items()
        }
        if not self.arms:
            raise SettingError("sweep.arms", expected="at least two arms", got="none")
        ideas = node["idea"]
        if not isinstance(ideas, (str, list)):
            raise SettingError("sweep.idea", expected="an arm, or a list of arms", got=ideas)
        self.ideas = [ideas] if isinstance(ideas, str) else ideas
        self.baselines = list(node["baselines"])
        for key, names in (("sweep.idea", self.ideas), ("sweep.baselines", self.baselines)):
            if not names or names == [""]:
                raise SettingError(key, expected=f"one of {', '.join(self.arms)}", got="nothing")
            for arm in names:
                self._known(key, arm)
            if len(set(names)) < len(names):
                raise SettingError(key, expected="different arms", got=", ".join(names))
        both = set(self.ideas) & set(self.baselines)
        if both:
            raise SettingError(
                "sweep.baselines", expected="other arms than the idea", got=min(both)
            )
        self.tasks = {
            name: Task(
                name,
                tuple(task["overrides"]),
                _margin(f"sweep.tasks.{name}", task),
                task["ablations"],
                task["note"],
            )
            for name, task in node["tasks"].items()
        } or {dataset: Task(dataset, (), None, True, "")}
        self.margin = _margin("sweep", node)
        self.selection_seeds = _seeds("sweep.selection_seeds", node["selection_seeds"], 0)
        self.eval_seeds = _seeds("sweep.eval_seeds", node["eval_seeds"], FIRST_EVALUATION_SEED)
        shared = set(self.selection_seeds) & set(self.eval_seeds)
        if shared:
            raise SettingError(
                "sweep.eval_seeds",
                expected="seeds that are not among sweep.selection_seeds",
                got=", ".join(map(str, sorted(shared))),
            )
        self.ablations = {name: tuple(texts) for name, texts in node["ablations"].items()}
        count = node["ablation_seeds"]
        if count is not None and not 1 <= count <= len(self.eval_seeds):
            raise SettingError(
                "sweep.ablation_seeds",
                expected=f"1 to {len(self.eval_seeds)}, of sweep.eval_seeds",
                got=count,
            )
        self.ablation_seeds = self.eval_seeds[:count]
        self._check_overrides()
        self._check_inheritance()
        self.unequal_budget = self._check_budgets(node["unequal_budget"])

    def selection_stages(self) -> Iterator[list[Arm]]:
        """Arms in groups: a later group's arms inherit from the earlier groups' choices."""
        done: set[str] = set()
        while len(done) < len(self.arms):
            wave = [
                arm
                for arm in self.arms.values()
                if arm.name not in done and done.issuperset(arm.inherit.values())
            ]
            yield wave
            done.update(arm.name for arm in wave)

    def selection_runs(
        self,
        task: Task,
        arm: Arm,
        chosen: Mapping[str, Mapping[str, Any]],
        trials: Sequence[Mapping[str, Any]] | None = None,
        first: int = 0,
    ) -> list[PlannedRun]:
        """An arm's trials on the selection seeds.

        Args:
            task: The task.
            arm: The arm.
            chosen: Values of the trials that other arms have chosen in this task, by arm.
            trials: Those of an extension; the arm's own if None.
            first: The first one's number.
        """
        return [
            self._run(task, arm, SELECTION, number, {**inherited(arm, chosen), **trial}, seed)
            for number, trial in enumerate(arm.trials if trials is None else trials, first)
            for seed in self.selection_seeds
        ]

    def extension(
        self,
        arm: Arm,
        ranges: Space,
        edges: Mapping[str, str],
        tried: Sequence[Mapping[str, Any]],
        stage: int,
    ) -> tuple[list[dict[str, Any]], Space]:
        """Half as many trials again: beyond the edges that the best one lies on, if on any.

        Args:
            arm: The arm.
            ranges: Its space so far.
            edges: `low` or `high` by setting; empty for an arm that has its share all the same.
            tried: The trials so far.
            stage: Number of the extension, from 1.

        Returns:
            The trials, and the space with what was added to it.
        """
        drawn_from, widened = extended(ranges, edges)
        number = extension_size(arm)
        place = f"sweep.arms.{arm.name}.space"
        return draw(place, drawn_from, number, self.search.seed, stage, tried), widened

    def evaluation_runs(
        self, task: Task, arm: Arm, trial: int, values: Mapping[str, Any]
    ) -> list[PlannedRun]:
        """The chosen trial on the evaluation seeds."""
        return [self._run(task, arm, EVALUATION, trial, values, seed) for seed in self.eval_seeds]

    def ablation_runs(self, task: Task, arm: Arm, values: Mapping[str, Any]) -> list[PlannedRun]:
        """The chosen trial with one thing changed, for every ablation that the task has."""
        return [
            self._run(task, arm, ABLATION, None, values, seed, name)
            for name in self.ablations
            for seed in self.ablation_seeds
            if task.ablations
        ]

    def numbers(self) -> dict[str, int]:
        """How many runs each stage has."""
        tasks = len(self.tasks)
        trials = sum(len(arm.trials) for arm in self.arms.values())
        return {
            SELECTION: tasks * trials * len(self.selection_seeds),
            EVALUATION: tasks * len(self.arms) * len(self.eval_seeds),
            ABLATION: sum(task.ablations for task in self.tasks.values())
            * len(self.ablations)
            * len(self.ablation_seeds),
        }

    def max_extension_runs(self) -> int:
        """How many selection runs a random search may add because best trials lie on edges."""
        an_extension = sum(map(extension_size, self.arms.values()))
        return self.search.extensions * len(self.tasks) * an_extension * len(self.selection_seeds)

    def description(self, changed: Sequence[str] = ()) -> Description:
        """What a report has to know beside the runs.

        Args:
            changed: Overrides that change it.
        """
        return Description(
            title=self.title,
            ideas=self.ideas,
            baselines=self.baselines,
            tasks={
                task.name: self.margin if task.margin is None else task.margin
                for task in self.tasks.values()
            },
            arms={arm.name: dict(arm.inherit) for arm in self.arms.values()},
            trials={arm.name: len(arm.trials) for arm in self.arms.values()},
            search=self.search.kind,
            unequal_budget=self.unequal_budget,
            task_notes={task.name: task.note for task in self.tasks.values() if task.note},
            ablations={name: list(texts) for name, texts in self.ablations.items()},
            published=self.published,
            source=self.source,
            changed=list(changed),
        )

    def fixed_keys(self) -> set[str]:
        """Settings that the description decides, which the command line may not."""
        keys = {"mixer", "mixer._target_", "seed", "test"}
        texts = [
            text for part in (self.arms, self.tasks) for x in part.values() for text in x.overrides
        ]
        keys.update(map(override_key, texts))
        for arm in self.arms.values():
            keys.update([*arm.searched, *arm.inherit])
        return keys

    def _run(
        self,
        task: Task,
        arm: Arm,
        role: Role,
        trial: int | None,
        values: Mapping[str, Any],
        seed: int,
        ablation: str | None = None,
    ) -> PlannedRun:
        overrides = (
            *task.overrides,
            f"mixer={arm.mixer}",
            *arm.overrides,
            *(f"{key}={as_override(value)}" for key, value in values.items()),
            *(self.ablations[ablation] if ablation is not None else ()),
            f"seed={seed}",
            # A run that takes part in a choice holds no test metric.
            f"test={'false' if role == SELECTION else 'true'}",
        )
        return PlannedRun(task.name, arm.name, role, trial, ablation, values, seed, overrides)

    def _known(self, key: str, arm: Any) -> None:
        if arm not in self.arms:
            raise SettingError(
                key,
                expected=f"one of {', '.join(self.arms)}",
                got=arm,
                fix=nearest(str(arm), self.arms),
            )

    def _check_overrides(self) -> None:
        """Arms differ in their mixers; what would break the pairing or the roles is refused."""
        for arm in self.arms.values():
            place = f"sweep.arms.{arm.name}"
            _refuse(f"{place}.overrides", map(override_key, arm.overrides), _PAIRED)
            _refuse(f"{place}.{self.search.where}", arm.searched, _PAIRED)
            _refuse(f"{place}.inherit", arm.inherit, _PAIRED)
        for name, texts in self.ablations.items():
            _refuse(f"sweep.ablations.{name}", map(override_key, texts), _PAIRED)
        for task in self.tasks.values():
            _refuse(f"sweep.tasks.{task.name}", map(override_key, task.overrides), _ROLES)

    def _check_inheritance(self) -> None:
        for arm in self.arms.values():
            for key, other in arm.inherit.items():
                place = f"sweep.arms.{arm.name}.inherit.{key}"
                self._known(place, other)
                source = self.arms[other]
                if key not in source.searched and key not in source.inherit:
                    raise SettingError(
                        place,
                        expected=f"an arm whose grid has {key}",
                        got=f"{other}, whose grid has {', '.join(source.searched) or 'nothing'}",
                    )
                if key in arm.searched:
                    raise SettingError(
                        place, expected=f"no {key} in the arm's own grid", got="one in both"
                    )
        for wave in self.selection_stages():
            if not wave:
                raise SettingError(
                    "sweep.arms", expected="arms that do not inherit in a circle", got="a circle"
                )

    def _check_budgets(self, unequal_budget: str) -> bool:
        """Whether the arms' numbers of trials differ, and that is allowed."""
        if unequal_budget not in ("refuse", "allow"):
            raise SettingError(
                "sweep.unequal_budget", expected="refuse or allow", got=unequal_budget
            )
        trials = {arm.name: len(arm.trials) for arm in self.arms.values()}
        if len(set(trials.values())) == 1:
            return False
        if unequal_budget == "refuse":
            raise SettingError(
                "sweep.arms",
                expected="grids with equal numbers of trials",
                got=", ".join(f"{name}: {n}" for name, n in trials.items()),
                fix="even them out, or set sweep.unequal_budget=allow, which the report will say",
            )
        return True


def _refuse(place: str, keys: Iterable[str], refused: Sequence[str]) -> None:
    """Refuse keys, and those below them in the configuration."""
    for key in keys:
        if key in refused or (key.startswith(("dataset.", "dataset/")) and "dataset" in refused):
            raise SettingError(
                place,
                expected="settings that leave data, training length and roles as they are",
                got=key,
                fix="what all arms share belongs to the task, a mixer to sweep.arms.ARM.mixer",
            )


def _margin(place: str, node: Mapping[str, Any]) -> float | None:
    margin: float | None = node["margin"]
    if margin is not None and not 0 <= margin < math.inf:
        raise SettingError(f"{place}.margin", expected="a number of at least 0", got=margin)
    return margin


def _seeds(key: str, value: Any, first: int) -> list[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        at_least(key, value, 1)
        return list(range(first, first + value))
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str)
        or not value
        or not all(type(seed) is int and seed >= 0 for seed in value)
        or len(set(value)) < len(value)
    ):
        raise SettingError(
            key, expected="a number of seeds, or a list of different ones", got=value
        )
    return list(value)
