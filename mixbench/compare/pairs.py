"""Arms against each other, seed by seed, and the statistics of their differences."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mixbench.compare.arms import finite_or_none, test_score
from mixbench.compare.studies import MISSING, Run, StudyRuns, TaskRuns
from mixbench.config.compose import config_folders
from mixbench.records.result import DIVERGED
from mixbench.stats.permutation import holm, sign_flip_p
from mixbench.stats.summaries import effect_size, interquartile_mean
from mixbench.stats.verdict import verdict


def paired_scores(
    study: StudyRuns, task: TaskRuns, idea: str, baseline: str, sign: float, worst: float | None
) -> dict[str, Any]:
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
                gaps.append(
                    {"arm": name, "seed": seed, "status": MISSING if run is None else run.status}
                )
                commands.append(_rerun_command(study, run, list(runs.values()), seed))
            else:
                scores[name] = score
        if len(scores) == 2:
            difference = sign * (scores[idea] - scores[baseline])
            pairs.append({"seed": seed, **scores, "difference": difference})
    return {
        "task": task.name,
        "idea": idea,
        "baseline": baseline,
        "pairs": pairs,
        "gaps": gaps,
        "diverged": diverged,
        "commands": list(dict.fromkeys(filter(None, commands))),
    }


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


def add_statistics(comparisons: Sequence[dict[str, Any]]) -> None:
    """Statistics and outcome of every comparison.

    p is adjusted over all comparisons of the study; those that lack pairs count with p = 1, so that
    a run that is lost makes no other verdict easier.
    """
    p_values = [sign_flip_p(_differences(each)) if _is_whole(each) else 1.0 for each in comparisons]
    adjusted = holm(np.array(p_values)) if comparisons else np.array([])
    for comparison, p, p_adjusted in zip(comparisons, p_values, adjusted, strict=True):
        comparison |= {"outcome": "incomplete", "qualifiers": []}
        if not _is_whole(comparison):
            continue
        differences = _differences(comparison)
        idea, baseline = comparison["idea"], comparison["baseline"]
        found = verdict(
            differences,
            margin=comparison["margin"],
            p_adjusted=float(p_adjusted),
            idea_scores=np.array([pair[idea] for pair in comparison["pairs"]]),
            baseline_scores=np.array([pair[baseline] for pair in comparison["pairs"]]),
            ceiling=comparison["ceiling"],
            higher_is_better=comparison["sign"] > 0,
            comparisons=len(comparisons),
        )
        # The score that stands for a diverged run is the worst that was seen; how much worse it
        # really is nobody knows, so an arm with diverged runs cannot win.
        vetoed = found.outcome == "beats" and comparison["diverged"][idea] > 0
        comparison |= {
            "outcome": "inconclusive" if vetoed else found.outcome,
            "qualifiers": list(found.qualifiers),
            "d": float(found.d),
            "interval": [finite_or_none(end) for end in found.interval],
            "p": float(p),
            "p_adjusted": float(p_adjusted),
            "comparisons_in_study": len(comparisons),
            "probability_of_improvement": float(found.probability_of_improvement),
            "effect_size": finite_or_none(effect_size(differences)),
            "iqm_difference": float(interquartile_mean(differences)),
            "seeds_needed": found.seeds_needed,
        }


def _is_whole(comparison: Mapping[str, Any]) -> bool:
    return bool(comparison["pairs"]) and not comparison["gaps"]


def _differences(comparison: Mapping[str, Any]) -> np.ndarray:
    return np.array([pair["difference"] for pair in comparison["pairs"]])


def strongest_baseline(
    study: StudyRuns, arms: Sequence[Mapping[str, Any]], sign: float
) -> str | None:
    """The baseline whose chosen trial has the best validation; test plays no part."""
    best: tuple[float, str] | None = None
    for arm in arms:
        if arm["name"] not in study.baselines:
            continue
        mean = None if arm["chosen"] is None else arm["trials"][arm["chosen"]]["mean"]
        score = -math.inf if mean is None else sign * mean
        if best is None or score > best[0]:
            best = (score, arm["name"])
    return None if best is None else best[1]


def compared_names(task: Mapping[str, Any], idea: str) -> bool:
    return any(comparison["idea"] == idea for comparison in task["comparisons"])
