"""A comparison with its records: arms, trials, runs, and the chosen trial. Never imports torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from mixbench.records.folder import RunFolder
from mixbench.records.result import COMPLETED, Result

MISSING = "missing"


@dataclass
class Run:
    """A run that was asked for; `result` is None where it has left none."""

    folder: RunFolder
    seed: int
    result: Result | None
    overrides: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        return MISSING if self.result is None else self.result.status

    def score(self, split: str) -> float | None:
        """The metric that comparisons use, where the run completed and read the split."""
        if self.result is None or self.status != COMPLETED:
            return None
        return self.result.score(split)


@dataclass
class Trial:
    """One configuration of an arm and its selection runs."""

    values: dict[str, Any]
    runs: list[Run] = field(default_factory=list)

    def mean_validation(self, seeds: set[int]) -> float | None:
        """Mean validation metric; None where a run is lost, which is the worst of all scores.

        Args:
            seeds: Those that count.
        """
        scores = [run.score("valid") for run in self.runs if run.seed in seeds]
        known = [score for score in scores if score is not None]
        return sum(known) / len(known) if known and len(known) == len(scores) else None


@dataclass
class ArmRuns:
    """An arm's trials, and the runs of the chosen one that judge it.

    Attributes:
        evaluated: Values of the trial that the evaluation runs are of.
        inherited: Keys whose values come from another arm.
        on_edge: Keys whose chosen value lies on an edge of a random search; None for a grid.
        grid: Values of every key that the trials vary.
    """

    name: str
    trials: list[Trial] = field(default_factory=list)
    evaluation: list[Run] = field(default_factory=list)
    evaluated: dict[str, Any] | None = None
    inherited: dict[str, str] = field(default_factory=dict)
    on_edge: list[str] | None = None

    @property
    def grid(self) -> dict[str, list[Any]]:
        values: dict[str, list[Any]] = {}
        for trial in self.trials:
            for key, value in trial.values.items():
                if key not in self.inherited and value not in values.setdefault(key, []):
                    values[key].append(value)
        return values

    def choose(self) -> int | None:
        """The trial with the best mean validation metric; no test metric is looked at.

        A trial with a diverged or failed run scores worst; among equals the one with the fewest of
        those is taken, then the first. Only seeds that all trials have run count.

        Returns:
            Its number; None where the trials share no seed.
        """
        ranks: dict[int, tuple[float, int, int]] = {}
        seeds = self.shared_seeds
        for number, trial in enumerate(self.trials if seeds else ()):
            results = [r.result for r in trial.runs if r.result is not None and r.seed in seeds]
            mean = trial.mean_validation(seeds)
            score = -math.inf
            if mean is not None:
                score = mean if results[0].higher_is_better else -mean
            lost = sum(result.status != COMPLETED for result in results)
            ranks[number] = (score, -lost, -number)
        return max(ranks, key=lambda number: ranks[number], default=None)

    @property
    def shared_seeds(self) -> set[int]:
        """Seeds for which every trial has a result."""
        sets = [{run.seed for run in t.runs if run.result is not None} for t in self.trials]
        return set.intersection(*sets) if sets else set()

    @property
    def completed(self) -> list[Result]:
        """Results of the completed runs that judge it, or of its others where none does."""
        for runs in (self.evaluation, self.runs):
            found = [r.result for r in runs if r.result is not None and r.status == COMPLETED]
            if found:
                return found
        return []

    @property
    def runs(self) -> list[Run]:
        """All of them, each once."""
        every = [run for trial in self.trials for run in trial.runs] + self.evaluation
        return list({run.folder.path: run for run in every}.values())


@dataclass
class TaskRuns:
    """The arms on one task, and the ablations of its first idea by name."""

    name: str
    margin: float | None = None
    arms: dict[str, ArmRuns] = field(default_factory=dict)
    ablations: dict[str, list[Run]] = field(default_factory=dict)


@dataclass
class StudyRuns:
    """A comparison with its records.

    Attributes:
        planned: Whether a sweep planned it; otherwise it was inferred from plain runs.
        command: What runs it again, or fills its gaps.
        notes: What a reader has to know first: assumptions, unequal budgets, records set aside.
        stage: How far its sweep has come: `selection`, `evaluation` or `finished`.
        wall_seconds: How long the sweep took, all starts of its command together.
        launched: How many runs they trained; others had records.
        ablations: What each ablation changes.
    """

    name: str
    title: str
    ideas: list[str]
    baselines: list[str]
    tasks: dict[str, TaskRuns]
    planned: bool
    command: str = ""
    published: str | None = None
    source: str | None = None
    notes: list[str] = field(default_factory=list)
    stage: str = "finished"
    wall_seconds: float | None = None
    launched: int = 0
    ablations: dict[str, list[str]] = field(default_factory=dict)
