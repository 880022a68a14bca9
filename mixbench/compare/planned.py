"""Comparisons from the folders of the sweeps that planned them. Never imports torch."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mixbench.compare.studies import ArmRuns, Run, StudyRuns, TaskRuns, Trial
from mixbench.config.comparison_schema import ABLATION, EVALUATION, SELECTION
from mixbench.core.errors import SettingError
from mixbench.core.files import bounded_text, strict_json
from mixbench.records.folder import RunFolder, listed_record

_COMPARISON_KEYS = {"name", "command", "started", "stage", "study"}


def sweep_study(folder: Path) -> StudyRuns:
    """A comparison's study from its sweep folder, as far as its runs have come."""
    content = json.loads((folder / "sweep.json").read_text())
    description = content["study"]
    earlier = content.get("earlier", {"wall_seconds": 0.0, "launched": 0})
    tasks: dict[str, TaskRuns] = {}
    for name, margin in description["tasks"].items():
        arms = {
            arm: ArmRuns(arm, inherited=dict(inherit))
            for arm, inherit in description["arms"].items()
        }
        for arm, keys in description.get("on_edge", {}).get(name, {}).items():
            arms[arm].on_edge = list(keys)
        tasks[name] = TaskRuns(name, margin, arms)
    for planned in content["runs"]:
        run_folder = RunFolder.at(listed_record(folder, planned))
        run = Run(
            run_folder, planned["seed"], run_folder.read_result(), tuple(planned["overrides"])
        )
        task = tasks[planned["task"]]
        arm = task.arms[planned["arm"]]
        if planned["role"] == SELECTION:
            while len(arm.trials) <= planned["trial"]:
                arm.trials.append(Trial(planned["values"]))
            arm.trials[planned["trial"]].runs.append(run)
        elif planned["role"] == EVALUATION:
            arm.evaluation.append(run)
            arm.evaluated = planned["values"]
        elif planned["role"] == ABLATION:
            task.ablations.setdefault(planned["ablation"], []).append(run)
    notes = []
    if description["unequal_budget"]:
        counts = ", ".join(f"{arm} {n}" for arm, n in description["trials"].items())
        notes.append(f"unequal budgets, as the sweep allows: trials {counts}")
    if description.get("search") == "random":
        for name, task in tasks.items():
            counts = ", ".join(f"{arm.name} {len(arm.trials)}" for arm in task.arms.values())
            notes.append(f"random search on {name}: trials {counts}")
    for task in tasks.values():
        for arm in task.arms.values():
            notes += _duplicate_trials(task, arm)
    changed = description.get("changed")
    if changed:
        notes.append(f"changed from the sweep as it is shipped: {' '.join(changed)}")
    notes += [f"{task}: {note}" for task, note in description.get("task_notes", {}).items()]
    return StudyRuns(
        name=content["name"],
        title=description["title"],
        ideas=description["ideas"],
        baselines=description["baselines"],
        tasks=tasks,
        planned=True,
        command=content["command"],
        published=description["published"],
        source=description["source"],
        notes=notes,
        stage=content["stage"],
        wall_seconds=(content.get("wall_seconds") or 0.0) + earlier["wall_seconds"],
        launched=content.get("launched", len(content["runs"])) + int(earlier["launched"]),
        ablations=description["ablations"],
    )


def from_sweeps(folders: Sequence[Path]) -> tuple[list[StudyRuns], list[Path], set[Path]]:
    """Comparisons, grids' runs, and all runs that belong to comparisons.

    Of a comparison that was started several times by the same command the last one counts, or the
    last that was finished.
    """
    comparisons: dict[str, list[tuple[bool, str, StudyRuns]]] = {}
    grid_runs = []
    claimed = set()
    for folder in folders:
        content = _sweep_content(folder)
        if content is None:
            continue
        records = [listed_record(folder, run) for run in content["runs"]]
        if content["kind"] == "grid":
            grid_runs += [record for record in records if record.is_dir()]
            continue
        claimed.update(records)
        try:
            study = sweep_study(folder)
        except (KeyError, TypeError, ValueError) as error:
            raise SettingError(
                "report", expected="a sweep.json as mixbench writes it", got=folder / "sweep.json"
            ) from error
        finished = study.stage == "finished"
        comparisons.setdefault(_same_command(study.command), []).append(
            (finished, content["started"], study)
        )
    studies = []
    for starts in comparisons.values():
        study = max(starts, key=lambda start: start[:2])[2]
        if len(starts) > 1:
            study.notes.append(f"{len(starts) - 1} other starts of the same command are set aside")
        studies.append(study)
    return studies, grid_runs, claimed


def previous_invocations(folder: Path, content: Mapping[str, Any]) -> dict[str, float]:
    """What other starts of a sweep took for runs that this start found done.

    Args:
        folder: The sweep's folder, among those of the other starts.
        content: Its `sweep.json`.

    Returns:
        `wall_seconds` and `launched` of all starts of the same command whose runs are among its.
    """
    mine = {run["record"] for run in content["runs"]}
    total = {"wall_seconds": 0.0, "launched": 0}
    for other in folder.parent.iterdir():
        found = _sweep_content(other) if other != folder else None
        if found is None or found["kind"] == "grid":
            continue
        records = {run.get("record") for run in found["runs"]}
        if _same_command(found["command"]) == _same_command(content["command"]) and records <= mine:
            total["wall_seconds"] += found.get("wall_seconds") or 0.0
            total["launched"] += found.get("launched", len(records))
    return total


def _sweep_content(folder: Path) -> dict[str, Any] | None:
    """What a `sweep.json` holds; None for a file that is not one of ours."""
    try:
        content = strict_json(bounded_text(folder / "sweep.json"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or not isinstance(content.get("runs"), list):
        return None
    content.setdefault("kind", "grid")  # as they were before there were comparisons
    known = content["kind"] == "grid" or content.keys() >= _COMPARISON_KEYS
    return content if known and all(isinstance(run, dict) for run in content["runs"]) else None


def _same_command(command: str) -> str:
    """A command without the launcher, which has no part in a result."""
    words = shlex.split(command)
    return shlex.join(word for word in words if not word.startswith(("hydra/launcher", "hydra.")))


def _duplicate_trials(task: TaskRuns, arm: ArmRuns) -> list[str]:
    """Trials whose runs came to the same losses to the last digit: they trained the same thing."""
    alike: dict[str, list[str]] = {}
    for trial in arm.trials:
        metrics = {run.seed: run.result.metrics for run in trial.runs if run.result is not None}
        if metrics and all("train/loss" in each for each in metrics.values()):
            values = ", ".join(f"{key}={value}" for key, value in trial.values.items())
            alike.setdefault(json.dumps(metrics, sort_keys=True), []).append(values)
    return [
        f"{task.name}, {arm.name}: trials {' and '.join(values)} produced identical losses: "
        "duplicate configuration"
        for values in alike.values()
        if len(values) > 1
    ]
