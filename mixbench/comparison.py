"""Studies to comparisons: choices, paired differences, verdicts and costs as plain data.

`compare` makes the content of `report.json`: strings, numbers, lists and dictionaries, None where
a number is not known. Tables, pages and plots are drawn from it alone. Never imports torch.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mixbench.collect import MISSING, ArmRuns, Run, StudyRuns, TaskRuns
from mixbench.overrides import flat, is_number
from mixbench.records import COMPLETED, DIVERGED, config_folders, read_history
from mixbench.report.tables import interval, signed
from mixbench.stats import (
    MAX_SEEDS,
    STATE_BITS,
    bits_to_recall,
    effect_size,
    expected_best,
    holm,
    interquartile_mean,
    recalled_bits,
    sign_flip_p,
    t_interval,
    verdict,
)
from mixbench.study import FIRST_EVALUATION_SEED


def compare(study: StudyRuns) -> dict[str, Any]:
    """One study's comparison, see the module."""
    tasks = [_task(study, task) for task in study.tasks.values()]
    comparisons = [comparison for task in tasks for comparison in task["comparisons"]]
    _judge(comparisons)
    for task in tasks:
        task["verdicts"] = [
            _headline(study, task, idea) for idea in study.ideas if _compared(task, idea)
        ]
    content = {
        "name": study.name,
        "title": study.title,
        "planned": study.planned,
        "stage": study.stage,
        "ideas": study.ideas,
        "baselines": study.baselines,
        "published": study.published,
        "source": study.source,
        "command": study.command,
        "commands": [study.command] if study.planned else _judging_commands(study),
        "wall_seconds": study.wall_seconds,
        "launched": study.launched,
        "notes": study.notes + _outdated(tasks) + _unlike(study),
        "environment": _environment(study),
        "tasks": tasks,
    }
    clean: dict[str, Any] = _legible(content)
    return clean


def _legible(content: Any) -> Any:
    """Plain data, its texts without what acts on a terminal or page instead of being read.

    Control characters, surrogates and overrides of the writing direction become U+FFFD: records may
    come from strangers.
    """
    if isinstance(content, (float, int)):  # nearly all of it
        return content
    if isinstance(content, str):
        return _ILLEGIBLE.sub("\N{REPLACEMENT CHARACTER}", content)
    if isinstance(content, dict):
        return {_legible(key): _legible(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return list(map(_legible, content))
    return content


def _unlike(study: StudyRuns) -> list[str]:
    """What the compared arms differ in beside their mixers and what their trials vary."""
    notes = []
    for task in study.tasks.values():
        compared = [task.arms[name] for name in study.ideas + study.baselines if name in task.arms]
        configs = {}
        for arm in compared:
            result = next((run.result for run in arm.evaluation if run.result is not None), None)
            if result is not None:
                config = {k: v for k, v in result["config"].items() if k not in ("mixer", "seed")}
                values = flat(config)
                # The code of a user's own mixer is part of its version, and so always another.
                if result["config"]["mixer"]["_target_"].startswith("mixbench."):
                    values["code"] = result["code_version"]
                varied = {*(arm.evaluated or {}), "device", "test"}
                varied |= {"optimizer.lr"} if "lr" in varied else set()
                configs[arm.name] = {k: v for k, v in values.items() if k not in varied}
        for key in sorted(set().union(*configs.values())):
            values = {name: config[key] for name, config in configs.items() if key in config}
            if len({str(value) for value in values.values()}) > 1:
                said = ", ".join(f"{name} {value}" for name, value in values.items())
                notes.append(f"{task.name}: arms also differ in {key}: {said}")
    return notes


def _outdated(tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Arms whose evaluation runs are of another trial than selection now prefers."""
    return [
        f"{task['name']}, {arm['name']}: a selection run was redone since, and another trial than "
        "the evaluated one is now the best; the same command evaluates it"
        for task in tasks
        for arm in task["arms"]
        if arm["chosen"] is not None
        and arm["evaluated"] is not None
        and arm["trials"][arm["chosen"]]["values"] != arm["evaluated"]
    ]


_RECALL = "mixbench.datasets.mqar.MQAR"
# A record from elsewhere must not make us sum for ever, or count beyond what a float tells apart.
_MOST_PAIRS, _MOST_VALUES = 2**16, 2**31

_ILLEGIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)

# What stands for a task of which no run has left a result.
_NOTHING: dict[str, Any] = {
    "metric": None,
    "higher_is_better": True,
    "margin": None,
    "config": {"dataset": {}},
}


def _task(study: StudyRuns, task: TaskRuns) -> dict[str, Any]:
    runs = [run for arm in task.arms.values() for run in arm.runs]
    known = next((run.result for run in runs if run.result is not None), _NOTHING)
    sign = 1.0 if known["higher_is_better"] else -1.0
    worst = _worst(task, known["metric"], sign)
    arms = [_arm(arm, sign, worst) for arm in task.arms.values()]
    completed = [run.result for run in runs if run.result and run.status == COMPLETED]
    comparisons = [
        _pairs(study, task, idea, baseline, sign, worst)
        for idea in study.ideas
        for baseline in study.baselines
        if idea in task.arms and baseline in task.arms
    ]
    recall = _recall(known["config"]["dataset"])
    if recall is not None:
        for arm in arms:
            arm["recall"] = _recalled(arm["evaluation"], recall)
    margin = known["margin"] if task.margin is None else task.margin
    for comparison in comparisons:
        comparison |= {"margin": margin, "ceiling": known.get("ceiling"), "sign": sign}
    return {
        "name": task.name,
        "metric": known["metric"],
        "higher_is_better": known["higher_is_better"],
        "margin": margin,
        "chance": completed[0]["chance"] if completed else {},
        "ceiling": known.get("ceiling"),
        "dataset": known["config"]["dataset"],
        "recall": recall,
        "arms": arms,
        "comparisons": comparisons,
        "strongest_baseline": _strongest(study, arms, sign),
        "ablations": _ablations(study, task, sign, worst),
    }


def _recall(dataset: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of associative recall: pairs K, values W, and the bits that K pairs take at least."""
    pairs, vocabulary = dataset.get("num_pairs"), dataset.get("vocab_size")
    if dataset.get("_target_") != _RECALL or type(pairs) is not int or type(vocabulary) is not int:
        return None
    values = vocabulary - vocabulary // 2
    if not (1 <= pairs <= values and 2 <= values <= _MOST_VALUES and pairs <= _MOST_PAIRS):
        return None
    return {"pairs": pairs, "values": values, "bits": bits_to_recall(pairs, values)}


def _recalled(
    evaluation: Sequence[Mapping[str, Any]], recall: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Bits that an arm's trained models recall and hold, means over those that completed."""
    known = [
        (run["test"], run["state"] * STATE_BITS)
        for run in evaluation
        if run["test"] is not None and 0 <= run["test"] <= 1 and run["state"]
    ]
    if not known:
        return None
    scores, held = np.array(known, dtype=np.float64).T
    bits = recalled_bits(recall["pairs"], recall["values"], 1 - scores)
    return {
        "bits": float(bits.mean()),
        "state_bits": float(held.mean()),
        "efficiency": float((bits / held).mean()),
    }


def _worst(task: TaskRuns, metric: str | None, sign: float) -> float | None:
    """The score of a diverged evaluation run: the worst that was seen, chance included.

    A metric like the squared error has no worst value, and an infinite one has no mean.
    """
    seen = []
    for run in [run for arm in task.arms.values() for run in arm.evaluation]:
        score = run.score("test")
        if score is not None and run.result is not None:
            seen.append(score)
            if metric is not None and metric in run.result["chance"]:
                seen.append(run.result["chance"][metric])
    return min(seen, key=lambda score: sign * score, default=None)


def _judged(run: Run, worst: float | None) -> float | None:
    """An evaluation run's score; None for a run that failed or is missing."""
    return worst if run.status == DIVERGED else run.score("test")


def _arm(arm: ArmRuns, sign: float, worst: float | None) -> dict[str, Any]:
    chosen = arm.choose()
    completed = [run.result for run in arm.evaluation if run.status == COMPLETED]
    completed = completed or [run.result for run in arm.runs if run.status == COMPLETED]
    example = completed[0] if completed else None
    seconds = [run.result["seconds"]["total"] for run in arm.runs if run.result is not None]
    trials = [
        {
            "values": trial.values,
            "seeds": [run.seed for run in trial.runs],
            "scores": [run.score("valid") for run in trial.runs],
            "mean": trial.mean_validation(arm.shared_seeds),
            "status": dict(Counter(run.status for run in trial.runs)),
        }
        for trial in arm.trials
    ]
    values = arm.evaluated if arm.evaluated is not None else {}
    return {
        "name": arm.name,
        "mixer": None if example is None else example["config"]["mixer"]["_target_"],
        "config": None if example is None else _without_seed(example["config"]),
        "parameters": None if example is None else example["parameters"]["total"],
        "state_size": _largest(completed, "state_size"),
        "state_held": _largest(completed, "state_held"),
        "n_cells": _largest(completed, "n_cells"),
        "operations": None if example is None else example["operations"]["per_token"],
        "pair_operations": None if example is None else example["operations"]["per_pair"],
        "trials": trials,
        "chosen": chosen,
        "evaluated": arm.evaluated,
        "inherited": arm.inherited,
        "on_edge": _on_edge(arm.grid, values) if arm.on_edge is None else arm.on_edge,
        "valid": _summary([run.score("valid") for run in arm.evaluation]),
        "test": _summary([_judged(run, worst) for run in arm.evaluation]),
        "evaluation": [_evaluation(run) for run in arm.evaluation],
        "lost": _lost(arm.runs),
        "seconds": {
            "total": sum(seconds),
            "mean": sum(seconds) / len(seconds) if seconds else None,
        },
        "signature": _signature(arm.evaluation),
        "budget": _budget(trials, sign),
    }


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "seed"}


def _largest(results: Iterable[Any], key: str) -> int | None:
    return max((result[key] for result in results if result[key] is not None), default=None)


def _on_edge(grid: Mapping[str, Sequence[Any]], values: Mapping[str, Any]) -> list[str]:
    """Keys whose chosen value is the smallest or largest of several numbers that were tried."""
    edges = []
    for key, tried in grid.items():
        numbers = list(filter(is_number, tried))
        extreme = len(numbers) > 1 and values.get(key) in (min(numbers), max(numbers))
        if extreme and len(numbers) == len(tried):
            edges.append(key)
    return edges


def _evaluation(run: Run) -> dict[str, Any]:
    result = run.result or {}
    history = []
    if run.result is not None:
        name = f"valid/{run.result['metric']}"
        # A curve that is missing or damaged is not drawn; the scores are those of the result.
        with suppress(OSError, ValueError, KeyError):
            history = [
                [row["step"], row[name]]
                for row in read_history(run.folder.history)
                if math.isfinite(row["step"]) and math.isfinite(row[name])
            ]
    return {
        "seed": run.seed,
        "status": run.status,
        "valid": run.score("valid"),
        "test": run.score("test"),
        "n_cells": result.get("n_cells"),
        "state": result.get("state_held") or result.get("state_size"),
        "history": history,
        "record": run.folder.path.name,
    }


def _summary(scores: Sequence[float | None]) -> dict[str, Any]:
    """Mean with its 95 % t interval, and interquartile mean; None where a score is not known."""
    known = [score for score in scores if score is not None]
    if not known or len(known) < len(scores):
        return {"mean": None, "interval": None, "iqm": None, "n": len(known)}
    values = np.array(known)
    return {
        "mean": float(values.mean()),
        "interval": [_finite(end) for end in t_interval(values)],
        "iqm": float(interquartile_mean(values)),
        "n": len(known),
    }


def _budget(trials: Sequence[Mapping[str, Any]], sign: float) -> list[float | None]:
    """Expected validation of the best of n trials, n = 1..M; None where a lost one takes part."""
    scores = [-math.inf if trial["mean"] is None else sign * trial["mean"] for trial in trials]
    if not scores:
        return []
    best = expected_best(np.array(scores)).tolist()
    return [None if math.isinf(score) else sign * score for score in best]


def _signature(runs: Sequence[Run]) -> dict[str, Any]:
    """Over an arm's trained models: a check holds if it holds in all of them."""
    completed = [run.result for run in runs if run.result and run.status == COMPLETED]
    signatures = [result["signature"] for result in completed]
    if not signatures:
        return {"outcome": "not evaluated", "failing": {}, "of": 0, "models": 0, "checks": []}
    stated = [signature for signature in signatures if signature is not None]
    if not stated:
        return {
            "outcome": "not stated",
            "failing": {},
            "of": 0,
            "models": len(signatures),
            "checks": [],
        }
    failing = Counter(name for signature in stated for name in signature["failing"])
    checks = [
        {
            "name": check["name"],
            "layer": check["layer"],
            "predicted": check["predicted"],
            "observed": check["observed"],
            "holds_in": sum(
                other["holds"]
                for signature in stated
                for other in signature["checks"]
                if (other["name"], other["layer"]) == (check["name"], check["layer"])
            ),
        }
        for check in stated[0]["checks"]
    ]
    return {
        "outcome": "refuted" if failing else "confirmed",
        "failing": dict(failing),
        "of": stated[0]["of"],
        "models": len(stated),
        "checks": checks,
    }


def _lost(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return [
        {
            "record": run.folder.path.name,
            "seed": run.seed,
            "status": run.status,
            "reason": None if run.result is None else run.result["reason"],
        }
        for run in runs
        if run.status != COMPLETED
    ]


def _pairs(
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
            score = None if run is None else _judged(run, worst)
            if score is None:
                gaps.append(
                    {"arm": name, "seed": seed, "status": MISSING if run is None else run.status}
                )
                commands.append(_fill(study, run, list(runs.values()), seed))
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


def _fill(study: StudyRuns, run: Run | None, others: Sequence[Run], seed: int) -> str:
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


def _judging_commands(study: StudyRuns) -> list[str]:
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


def _judge(comparisons: Sequence[dict[str, Any]]) -> None:
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
        # really is nobody knows, so an idea that diverges beats nothing.
        vetoed = found.outcome == "beats" and comparison["diverged"][idea] > 0
        comparison |= {
            "outcome": "inconclusive" if vetoed else found.outcome,
            "qualifiers": list(found.qualifiers),
            "d": float(found.d),
            "interval": [_finite(end) for end in found.interval],
            "p": float(p),
            "p_adjusted": float(p_adjusted),
            "comparisons_in_study": len(comparisons),
            "probability_of_improvement": float(found.probability_of_improvement),
            "effect_size": _finite(effect_size(differences)),
            "iqm_difference": float(interquartile_mean(differences)),
            "seeds_needed": found.seeds_needed,
        }


def _is_whole(comparison: Mapping[str, Any]) -> bool:
    return bool(comparison["pairs"]) and not comparison["gaps"]


def _differences(comparison: Mapping[str, Any]) -> np.ndarray:
    return np.array([pair["difference"] for pair in comparison["pairs"]])


def _strongest(study: StudyRuns, arms: Sequence[Mapping[str, Any]], sign: float) -> str | None:
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


def _compared(task: Mapping[str, Any], idea: str) -> bool:
    return any(comparison["idea"] == idea for comparison in task["comparisons"])


def _headline(study: StudyRuns, task: Mapping[str, Any], idea: str) -> dict[str, Any]:
    """The verdict on an idea: its mechanism, and the comparison with the strongest baseline."""
    baseline = task["strongest_baseline"]
    (comparison,) = [
        each
        for each in task["comparisons"]
        if each["idea"] == idea and each["baseline"] == baseline
    ]
    (arm,) = [each for each in task["arms"] if each["name"] == idea]
    signature = arm["signature"]
    mechanism = f"mechanism {signature['outcome']}"
    if 0 < signature["models"] < len(arm["evaluation"]):
        mechanism += f" on {signature['models']} of {len(arm['evaluation'])} models"
    if signature["failing"]:
        mechanism += f" ({', '.join(signature['failing'])})"
    outcome = {
        "beats": "beats tuned baseline",
        "not beaten": "baseline not beaten",
        "inconclusive": "inconclusive",
        "saturated": "saturated",
        "incomplete": "no verdict",
    }[comparison["outcome"]]
    outcome = ", ".join([outcome, *comparison["qualifiers"]])
    count = len(comparison["pairs"])
    if comparison["outcome"] == "incomplete":
        detail = f"{len(comparison['gaps'])} runs missing or failed"
        if not comparison["gaps"]:
            detail = "nothing has been evaluated"
    else:
        detail = (
            f"d = {signed(comparison['d'])}, 95 % CI {interval(comparison['interval'])}, "
            f"p = {comparison['p_adjusted']:.3g}, {count} seeds"
        )
    for name, lost in comparison["diverged"].items():
        if lost:
            detail += f"; {name} diverged at {lost}"
    if comparison["outcome"] == "inconclusive":
        detail += _advice(study, comparison)
    place = f" on {task['name']}" if len(study.tasks) > 1 else ""
    summary = f"{idea} vs {baseline}{place}: {mechanism}, {outcome}"
    return {
        "idea": idea,
        "baseline": baseline,
        "mechanism": signature["outcome"],
        "outcome": comparison["outcome"],
        "headline": f"{summary} ({detail})",
        "summary": summary,
        "detail": detail,
    }


def _advice(study: StudyRuns, comparison: Mapping[str, Any]) -> str:
    """How many more seeds a verdict would take."""
    needed, seeds = comparison["seeds_needed"], [pair["seed"] for pair in comparison["pairs"]]
    if comparison["diverged"][comparison["idea"]]:
        return "; an idea that diverges beats nothing"
    if len(seeds) < 2:
        return "; one seed tells nothing of the spread"
    if needed is None:
        return f"; a verdict would take more than {MAX_SEEDS} seeds"
    counted = seeds == list(range(FIRST_EVALUATION_SEED, FIRST_EVALUATION_SEED + len(seeds)))
    how = f": sweep.eval_seeds={needed}" if study.planned and counted else ""
    return f"; {needed - len(seeds)} more seeds for a verdict{how}"


def _ablations(
    study: StudyRuns, task: TaskRuns, sign: float, worst: float | None
) -> list[dict[str, Any]]:
    """The first idea with one thing changed, against itself, paired by seed."""
    if not task.ablations:
        return []
    whole = {run.seed: _judged(run, worst) for run in task.arms[study.ideas[0]].evaluation}
    out = []
    for name, runs in task.ablations.items():
        scores = {run.seed: _judged(run, worst) for run in runs}
        differences = [
            None if score is None or (other := whole.get(seed)) is None else sign * (score - other)
            for seed, score in scores.items()
        ]
        out.append(
            {
                "name": name,
                "overrides": study.ablations[name],
                "test": _summary(list(scores.values())),
                "scores": [scores[seed] for seed in sorted(scores)],
                "difference": _summary(differences),
                "n_cells": _largest(
                    [run.result for run in runs if run.score("valid") is not None], "n_cells"
                ),
                "signature": _signature(runs),
                "lost": _lost(runs),
            }
        )
    return out


def _environment(study: StudyRuns) -> dict[str, Any]:
    """Machine and versions that the records name; more than one where they differ."""
    found: dict[str, set[str]] = {}
    dates = []
    count: Counter[str] = Counter()
    for task in study.tasks.values():
        ablations = [run for runs in task.ablations.values() for run in runs]
        for run in [run for arm in task.arms.values() for run in arm.runs] + ablations:
            count[run.status] += 1
            if run.result is None:
                continue
            dates.append(run.result["started"])
            for key in ("system", "cpus"):
                found.setdefault(key, set()).add(str(run.result["machine"][key]))
            for key in ("device", "threads", "code_version"):
                found.setdefault(key, set()).add(str(run.result[key]))
            for key, value in run.result["versions"].items():
                found.setdefault(key, set()).add(value)
    return {
        **{key: sorted(values) for key, values in found.items()},
        "runs": dict(count),
        "first_started": min(dates, default=None),
        "last_started": max(dates, default=None),
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
