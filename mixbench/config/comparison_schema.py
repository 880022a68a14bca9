"""What `sweep` describes: the schema of a comparison and the roles of its runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["selection", "evaluation", "ablation"]
SELECTION: Role = "selection"
EVALUATION: Role = "evaluation"
ABLATION: Role = "ablation"

Search = Literal["grid", "random"]


# Evaluation seeds given as a number start here: more of them keep the old ones, and none is a
# selection seed.
FIRST_EVALUATION_SEED = 1000


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
