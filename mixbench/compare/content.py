"""What a report says: the content of `report.json`, which tables, plots and pages are made from.

None stands for a number that is not known. Never imports torch.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mixbench.records.result import Bound

Interval = tuple[float | None, float | None]
Outcome = Literal["beats", "not beaten", "inconclusive", "saturated", "incomplete"]
Mechanism = Literal["confirmed", "refuted", "not stated", "not evaluated"]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Mean of some scores with its 95 % t interval, and interquartile mean."""

    mean: float | None
    interval: Interval
    iqm: float | None
    n: int


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that was tried: validation by seed, and how many runs ended how."""

    values: dict[str, Any]
    seeds: list[int]
    scores: list[float | None]
    mean: float | None
    status: dict[str, int]


class EvaluationRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that judges its arm; `history` has steps and validation scores."""

    seed: int
    status: str
    valid: float | None
    test: float | None
    diagnostics: dict[str, float]
    state: int | None
    history: list[tuple[float, float]]
    record: str


class LostRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that did not complete."""

    record: str
    seed: int
    status: str
    reason: str | None


class SignatureCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A claim of one layer, as the first model saw it, and in how many models it holds."""

    name: str
    layer: int
    predicted: Any
    observed: Any
    holds_in: int


class SignatureReport(msgspec.Struct, frozen=True, kw_only=True):
    """An arm's claims over its trained models; `failing` counts the models a claim fails in."""

    outcome: Mechanism
    failing: dict[str, int] = {}
    of: int = 0
    models: int = 0
    checks: list[SignatureCheck] = []


class ArmSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Wall time of all of an arm's runs, and of one."""

    total: float
    mean: float | None


class ArmReport(msgspec.Struct, frozen=True, kw_only=True):
    """An arm of a task.

    Attributes:
        mixer: Its class.
        config: Its configuration, without the seed.
        chosen: Number of the chosen trial.
        evaluated: The values that were judged.
        inherited: Keys whose values come from another arm's choice.
        on_edge: Keys whose chosen value lies on an edge of what was tried.
        budget: Expected validation of the best of n trials, n = 1, 2, ...
        analysis: Means of what the task says of its runs.
        probes: Mean scores on further test sets.
    """

    name: str
    mixer: str | None
    config: dict[str, Any] | None
    parameters: int | None
    state_size: int | None
    measured_state_size: int | None
    diagnostics: dict[str, float]
    operations: dict[str, float] | None
    pair_operations: dict[str, float] | None
    trials: list[TrialReport]
    chosen: int | None
    evaluated: dict[str, Any] | None
    inherited: dict[str, str]
    on_edge: list[str]
    valid: Summary
    test: Summary
    evaluation: list[EvaluationRun]
    lost: list[LostRun]
    seconds: ArmSeconds
    signature: SignatureReport
    budget: list[float | None]
    analysis: dict[str, float]
    probes: dict[str, float]


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides' scores with one seed; the difference is positive where the idea is better."""

    seed: int
    idea: float
    baseline: float
    difference: float


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A side of a pair that is not there."""

    arm: str
    seed: int
    status: str


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of a comparison whose pairs are all there.

    Attributes:
        d: Mean difference, positive where the idea is better.
        interval: Its 95 % interval.
        p: One-sided sign-flip permutation test.
        p_adjusted: By Holm over all comparisons of the study.
        comparisons_in_study: How many those are.
        seeds_needed: In all for a verdict, as far as these pairs tell; None for too many.
    """

    d: float
    interval: Interval
    p: float
    p_adjusted: float
    comparisons_in_study: int
    probability_of_improvement: float
    effect_size: float | None
    iqm_difference: float
    seeds_needed: int | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """An idea against a baseline on a task.

    Attributes:
        diverged: Evaluation runs that diverged, by arm.
        commands: What makes the runs that are missing.
        qualifiers: Of a `not beaten`: `equivalent` or `worse`.
        statistics: None while pairs are missing.
    """

    task: str
    idea: str
    baseline: str
    pairs: list[Pair]
    gaps: list[Gap]
    diverged: dict[str, int]
    commands: list[str]
    outcome: Outcome = "incomplete"
    qualifiers: list[str] = []
    statistics: Statistics | None = None

    @property
    def is_whole(self) -> bool:
        """Whether there are pairs, and no side of one is missing."""
        return bool(self.pairs) and not self.gaps


class AblationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The first idea with one thing changed; the difference is to the idea itself."""

    name: str
    overrides: list[str]
    test: Summary
    scores: list[float | None]
    difference: Summary
    diagnostics: dict[str, float]
    signature: SignatureReport
    lost: list[LostRun]


class TaskAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """What a task's analyses have in common, see `datasets.base.Analysis`."""

    title: str
    note: str
    bound: Bound
    bound_note: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of an idea: a headline of `summary` and `detail`, and plain sentences."""

    idea: str
    baseline: str
    mechanism: Mechanism
    outcome: Outcome
    headline: str
    summary: str
    detail: str
    sentences: list[str]


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a study; `metric` is None where no run of it has left a result."""

    name: str
    metric: str | None
    higher_is_better: bool
    margin: float | None
    ceiling: float | None
    trivial_baseline: dict[str, float]
    dataset: dict[str, Any]
    analysis: TaskAnalysis | None
    arms: list[ArmReport]
    comparisons: list[Comparison]
    strongest_baseline: str | None
    ablations: list[AblationReport]
    verdicts: list[Verdict] = []

    @property
    def sign(self) -> float:
        """What makes a difference positive where it is better."""
        return 1.0 if self.higher_is_better else -1.0

    def arm(self, name: str) -> ArmReport:
        """The arm of that name."""
        (found,) = [arm for arm in self.arms if arm.name == name]
        return found


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Machines and versions that the records name, several where they differ, and when."""

    found: dict[str, list[str]]
    runs: dict[str, int]
    first_started: str | None
    last_started: str | None


class StudyReport(msgspec.Struct, frozen=True, kw_only=True):
    """A study: a comparison with its records, or plain runs from which one is inferred.

    Attributes:
        planned: Whether a sweep planned it.
        stage: How far its sweep has come: `selection`, `evaluation` or `finished`.
        published: The verdict that was published, and where.
        command: What runs it again.
        commands: What makes the runs that judge it.
        wall_seconds: How long its sweep took.
        launched: How many runs that trained; others had records.
        notes: What a reader has to know first.
    """

    name: str
    title: str
    planned: bool
    stage: str
    ideas: list[str]
    baselines: list[str]
    published: str | None
    source: str | None
    command: str
    commands: list[str]
    wall_seconds: float | None
    launched: int
    notes: list[str]
    environment: Environment
    tasks: list[TaskReport]
