"""Arms against each other, seed by seed, and the statistics of their differences."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mixbench.compare.arms import finite_or_none, test_score
from mixbench.compare.content import ArmReport, Comparison, Gap, Pair, Statistics, TaskReport
from mixbench.compare.studies import MISSING, Run, StudyRuns, TaskRuns
from mixbench.config.compose import config_folders
from mixbench.records.result import DIVERGED
from mixbench.stats.permutation import holm, sign_flip_p
from mixbench.stats.rule import BEATS, INCONCLUSIVE
from mixbench.stats.summaries import effect_size, interquartile_mean
from mixbench.stats.verdict import verdict


def paired_scores(
    study: StudyRuns, task: TaskRuns, idea: str, baseline: str, sign: float, worst: float | None
) -> Comparison:
    """Paired scores of two arms' evaluation runs; gaps where a side has none."""
    sides = {
        name: {run.seed: run for run in task.arms[name].evaluation} for name in (idea, baseline)
    }
    pairs, gaps, commands = [], [], []
    diverged = {
        name: sum(run.status == DIVERGED for run in runs.values()) for name, runs in sides.items()
    }
    for seed in sorted(set(sides[idea]) | set(sides[baseline])):
        scores = {}
        for name, runs in sides.items():
            run = runs.get(seed)
            score = None if run is None else test_score(run, worst)
            if score is None:
                status = MISSING if run is None else run.status
                gaps.append(Gap(arm=name, seed=seed, status=status))
                commands.append(_rerun_command(study, run, list(runs.values()), seed))
            else:
                scores[name] = score
        if len(scores) == 2:
            ours, theirs = scores[idea], scores[baseline]
            difference = sign * (ours - theirs)
            pairs.append(Pair(seed=seed, idea=ours, baseline=theirs, difference=difference))
    return Comparison(
        task=task.name,
        idea=idea,
        baseline=baseline,
        pairs=pairs,
        gaps=gaps,
        diverged=diverged,
        commands=list(dict.fromkeys(filter(None, commands))),
    )


def _rerun_command(study: StudyRuns, run: Run | None, others: Sequence[Run], seed: int) -> str:
    """The command that makes a run that is missing or has failed."""
    if study.planned:
        return f"{study.command} rerun=failed"
    source = run or (others[0] if others else None)
    texts = [] if source is None else _recorded_arguments(source)
    # A comparison's run is made by its comparison only.
    if not texts or any(text.startswith("sweep=") for text in texts):
        return ""
    texts = [text for text in texts if not text.startswith("seed=")]
    retry = ["rerun=failed"] if run is not None else []
    return shlex.join(["mixbench", *texts, f"seed={seed}", *retry])


def judging_commands(study: StudyRuns) -> list[str]:
    """The commands that make the runs which judge plain runs' arms, where they can be told."""
    commands = []
    for task in study.tasks.values():
        for arm in task.arms.values():
            texts = _recorded_arguments(arm.evaluation[0]) if arm.evaluation else []
            if not texts or any(text.startswith("sweep=") for text in texts):
                continue
            texts = [text for text in texts if not text.startswith("seed=")]
            seeds = ",".join(str(run.seed) for run in arm.evaluation)
            several = ["-m"] if len(arm.evaluation) > 1 else []
            commands.append(shlex.join(["mixbench", *texts, f"seed={seeds}", *several]))
    return list(dict.fromkeys(commands))


def _recorded_arguments(run: Run) -> list[str]:
    """What was typed for a run, from its `.hydra` folder; nothing where that cannot be read."""
    folder = run.folder.path / ".hydra"
    try:
        overrides = OmegaConf.load(folder / "overrides.yaml")
        hydra = OmegaConf.select(OmegaConf.load(folder / "hydra.yaml"), "hydra")
        return [*config_folders(hydra), *map(str, overrides)]
    except (OSError, OmegaConfBaseException):
        return []


def with_statistics(tasks: Sequence[TaskReport]) -> list[TaskReport]:
    """The tasks with the statistics and outcome of every comparison.

    p is adjusted over all comparisons of the study; those that lack pairs count with p = 1, so that
    a run that is lost makes no other verdict easier.
    """
    comparisons = [comparison for task in tasks for comparison in task.comparisons]
    p_values = [sign_flip_p(_differences(each)) if each.is_whole else 1.0 for each in comparisons]
    adjusted = holm(np.array(p_values)) if comparisons else np.array([])
    p_of = zip(p_values, adjusted, strict=True)
    return [
        replace(
            task,
            comparisons=[
                _judged(task, each, *next(p_of), len(comparisons)) for each in task.comparisons
            ],
        )
        for task in tasks
    ]


def _judged(
    task: TaskReport, comparison: Comparison, p: float, p_adjusted: float, number: int
) -> Comparison:
    """One of so many comparisons with its statistics, if it has all pairs."""
    if not comparison.is_whole:
        return comparison
    assert task.margin is not None
    differences = _differences(comparison)
    found = verdict(
        differences,
        margin=task.margin,
        p_adjusted=float(p_adjusted),
        idea_scores=np.array([pair.idea for pair in comparison.pairs]),
        baseline_scores=np.array([pair.baseline for pair in comparison.pairs]),
        ceiling=task.ceiling,
        higher_is_better=task.higher_is_better,
        comparisons=number,
    )
    low, high = map(finite_or_none, found.interval)
    # The score that stands for a diverged run is the worst that was seen; how much worse it really
    # is nobody knows, so an arm with diverged runs cannot win.
    vetoed = found.outcome == BEATS and comparison.diverged[comparison.idea] > 0
    return replace(
        comparison,
        outcome=INCONCLUSIVE if vetoed else found.outcome,
        qualifiers=list(found.qualifiers),
        statistics=Statistics(
            d=float(found.d),
            interval=(low, high),
            p=float(p),
            p_adjusted=float(p_adjusted),
            comparisons_in_study=number,
            probability_of_improvement=float(found.probability_of_improvement),
            effect_size=finite_or_none(effect_size(differences)),
            iqm_difference=float(interquartile_mean(differences)),
            seeds_needed=found.seeds_needed,
        ),
    )


def _differences(comparison: Comparison) -> np.ndarray:
    return np.array([pair.difference for pair in comparison.pairs])


def strongest_baseline(study: StudyRuns, arms: Sequence[ArmReport], sign: float) -> str | None:
    """The baseline whose chosen trial has the best validation; test plays no part."""
    best: tuple[float, str] | None = None
    for arm in arms:
        if arm.name not in study.baselines:
            continue
        mean = None if arm.chosen is None else arm.trials[arm.chosen].mean
        score = -math.inf if mean is None else sign * mean
        if best is None or score > best[0]:
            best = (score, arm.name)
    return None if best is None else best[1]
