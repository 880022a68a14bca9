"""A comparison's description and the runs that it asks for. Never imports torch.

A sweep YAML holds the description under `sweep`: tasks, arms with their grids, seeds and margin.
`Study` checks it, and lists the runs of its stages. Words are those of the design: an *arm* is one
contender, a *trial* one configuration of it, *selection seeds* choose among trials by validation,
*evaluation seeds* judge the chosen ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from mixbench.errors import SettingError, at_least, nearest, unknown_key
from mixbench.overrides import as_override, flat, override_key
from mixbench.search import Space, draw, extended, space

# Evaluation seeds given as a number start here: more of them keep the old ones, and none is a
# selection seed.
FIRST_EVALUATION_SEED = 1000

SELECTION, EVALUATION, ABLATION = "selection", "evaluation", "ablation"

# Which run it is; and what all arms of a task have to share to be paired by seed.
_ROLES = ("mixer", "mixer._target_", "seed", "test", "sweep")
_PAIRED = (*_ROLES, "dataset", "batch_size", "epochs", "steps")


@dataclass
class ArmSchema:
    """An arm in a sweep YAML.

    Attributes:
        mixer: Choice of the `mixer` group.
        overrides: Fixed settings, as typed on the command line.
        grid: Settings to try, a list of values each, all combinations. Dotted keys are nested:
            `mixer: {sigma: [0.35, 0.7]}`.
        space: In a random search instead of a grid: for each setting a range, `lr: {low: 1e-4,
            high: 1e-1}`, drawn evenly in the logarithm (`log: false`: evenly), or a list.
        inherit: Settings taken from another arm's chosen trial: `lr: attention`.
    """

    mixer: str = ""
    overrides: list[str] = field(default_factory=list)
    grid: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)
    inherit: dict[str, Any] = field(default_factory=dict)


@dataclass
class TaskSchema:
    """A task in a sweep YAML.

    Attributes:
        overrides: What makes it, as typed on the command line: `dataset=mqar`, `steps=800`.
        margin: The smallest difference that matters in it; the study's if None.
        ablations: Whether the study's ablations run on it.
        note: What a reader of its results has to know.
    """

    overrides: list[str] = field(default_factory=list)
    margin: float | None = None
    ablations: bool = True
    note: str = ""


@dataclass
class ComparisonSchema:
    """A comparison in a sweep YAML, under the key `sweep`.

    Attributes:
        title: What is compared, in a few words.
        idea: The arm on trial, or a list of them.
        baselines: The arms to beat.
        arms: All arms by name.
        tasks: Tasks by name; each is a comparison of its own. Empty for the configuration's one.
        selection_seeds: A list of seeds, or how many (0, 1, ...).
        eval_seeds: A list of seeds, or how many (1000, 1001, ...).
        search: `grid`, all combinations of each arm's grid, or `random`, draws from its space.
        trials: Of a random search: how many configurations every arm tries.
        search_seed: Of a random search: which draws.
        extensions: Of a random search: how often at most every arm tries half as many
            configurations again because some arm's best one lies on an edge of its space; that
            arm then looks beyond the edge.
        margin: The smallest difference that matters; the dataset's if None.
        unequal_budget: `refuse` arms with different numbers of trials, or `allow` them.
        ablations: Overrides by name, each applied to the first idea's chosen configuration, in
            every task that does not say `ablations: false`.
        ablation_seeds: How many of the evaluation seeds they run on; all if None.
        published: The verdict that was published, to print beside this one.
        source: Where it was published.
        preview: List the runs and run nothing.
        out: A second folder for the report, as Markdown with plots.
    """

    title: str = ""
    idea: Any = ""
    baselines: list[str] = field(default_factory=list)
    arms: dict[str, ArmSchema] = field(default_factory=dict)
    tasks: dict[str, TaskSchema] = field(default_factory=dict)
    selection_seeds: Any = 4
    eval_seeds: Any = 8
    search: str = "grid"
    trials: int | None = None
    search_seed: int = 0
    extensions: int = 2
    margin: float | None = None
    unequal_budget: str = "refuse"
    ablations: dict[str, list[str]] = field(default_factory=dict)
    ablation_seeds: int | None = None
    published: str | None = None
    source: str | None = None
    preview: bool = False
    out: str | None = None


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
    role: str
    trial: int | None
    ablation: str | None
    values: Mapping[str, Any]
    seed: int
    overrides: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "overrides": list(self.overrides)}


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
            if key not in _keys_of(ComparisonSchema):
                raise unknown_key(f"sweep.{key}", _keys_of(ComparisonSchema))
        self.title = str(node["title"])
        self.published: str | None = node["published"]
        self.source: str | None = node["source"]
        self.search = _Search.of(node)
        self.arms = {
            str(name): _arm(str(name), arm, self.search) for name, arm in node["arms"].items()
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

    def selection_waves(self) -> Iterator[list[Arm]]:
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
        number = _in_extension(arm)
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

    def most_beyond_edges(self) -> int:
        """How many selection runs a random search may add because best trials lie on edges."""
        an_extension = sum(map(_in_extension, self.arms.values()))
        return self.search.extensions * len(self.tasks) * an_extension * len(self.selection_seeds)

    def description(self) -> dict[str, Any]:
        """What a report has to know beside the runs, for `sweep.json`."""
        return {
            "title": self.title,
            "ideas": self.ideas,
            "baselines": self.baselines,
            "tasks": {
                task.name: self.margin if task.margin is None else task.margin
                for task in self.tasks.values()
            },
            "arms": {arm.name: dict(arm.inherit) for arm in self.arms.values()},
            "trials": {arm.name: len(arm.trials) for arm in self.arms.values()},
            "search": self.search.kind,
            "unequal_budget": self.unequal_budget,
            "task_notes": {task.name: task.note for task in self.tasks.values() if task.note},
            "ablations": {name: list(texts) for name, texts in self.ablations.items()},
            "published": self.published,
            "source": self.source,
        }

    def decided_keys(self) -> set[str]:
        """Settings that the description decides, which the command line may not."""
        keys = {"mixer", "mixer._target_", "seed", "test"}
        texts = [
            text for part in (self.arms, self.tasks) for x in part.values() for text in x.overrides
        ]
        keys.update(map(override_key, texts))
        for arm in self.arms.values():
            keys.update([*arm.searched, *arm.inherit])
        # What acts through another key only is decided there.
        return keys | {f"optimizer.{key}" for key in keys & {"lr", "weight_decay"}}

    def _run(
        self,
        task: Task,
        arm: Arm,
        role: str,
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
        for wave in self.selection_waves():
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


def inherited(arm: Arm, chosen: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The values that an arm takes over from other arms' chosen trials."""
    return {key: chosen[other][key] for key, other in arm.inherit.items()}


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


def _keys_of(schema: type[Any]) -> list[str]:
    return [each.name for each in fields(schema)]


@dataclass(frozen=True)
class _Search:
    """How arms come by their trials: `trials` is None for a grid."""

    kind: str
    trials: int | None
    seed: int
    extensions: int

    @property
    def where(self) -> str:
        """The key of an arm that says what is tried."""
        return "grid" if self.trials is None else "space"

    @staticmethod
    def of(node: Mapping[str, Any]) -> _Search:
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
        return _Search(kind, trials, node["search_seed"], extensions)


def _arm(name: str, node: Mapping[str, Any], search: _Search) -> Arm:
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


def _in_extension(arm: Arm) -> int:
    """How many trials an extension of a random search adds to an arm."""
    return math.ceil(len(arm.trials) / 2)


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
