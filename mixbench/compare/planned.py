"""Comparisons from the folders of the sweeps that planned them. Never imports torch."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mixbench.compare.studies import ArmRuns, Run, StudyRuns, TaskRuns, Trial
from mixbench.config.comparison_schema import EVALUATION, SELECTION
from mixbench.core.errors import SettingError
from mixbench.records.folder import RunFolder, listed_record
from mixbench.records.sweep import (
    Comparison,
    ComparisonRun,
    Description,
    Earlier,
    Grid,
    read_sweep,
)


def sweep_study(folder: Path) -> StudyRuns:
    """A comparison's study from its sweep folder, as far as its runs have come."""
    content = read_sweep(folder)
    assert isinstance(content, Comparison)
    return _study(folder, content)


def _study(folder: Path, content: Comparison) -> StudyRuns:
    study = content.study
    tasks = {
        name: TaskRuns(
            name,
            margin,
            {
                arm: ArmRuns(arm, inherited=inherit, on_edge=study.on_edge.get(name, {}).get(arm))
                for arm, inherit in study.arms.items()
            },
        )
        for name, margin in study.tasks.items()
    }
    for planned in content.runs:
        run_folder = RunFolder.at(listed_record(folder, planned.record))
        run = Run(run_folder, planned.seed, run_folder.read_result(), tuple(planned.overrides))
        _place(tasks[planned.task], planned, run)
    return StudyRuns(
        name=content.name,
        title=study.title,
        ideas=list(study.ideas),
        baselines=list(study.baselines),
        tasks=tasks,
        planned=True,
        command=content.command,
        published=study.published,
        source=study.source,
        notes=_notes(study, tasks),
        stage=content.stage,
        wall_seconds=content.seconds,
        launched=content.trained,
        ablations=study.ablations,
    )


def _place(task: TaskRuns, planned: ComparisonRun, run: Run) -> None:
    """Put a run where its role has it."""
    arm = task.arms[planned.arm]
    if planned.role == SELECTION:
        assert planned.trial is not None
        while len(arm.trials) <= planned.trial:
            arm.trials.append(Trial(planned.values))
        arm.trials[planned.trial].runs.append(run)
    elif planned.role == EVALUATION:
        arm.evaluation.append(run)
        arm.evaluated = planned.values
    elif planned.ablation is not None:
        task.ablations.setdefault(planned.ablation, []).append(run)


def _notes(study: Description, tasks: Mapping[str, TaskRuns]) -> list[str]:
    """What a reader of a planned comparison has to know first."""
    notes = []
    if study.unequal_budget:
        counts = ", ".join(f"{arm} {n}" for arm, n in study.trials.items())
        notes.append(f"unequal budgets, as the sweep allows: trials {counts}")
    if study.search == "random":
        for name, task in tasks.items():
            counts = ", ".join(f"{arm.name} {len(arm.trials)}" for arm in task.arms.values())
            notes.append(f"random search on {name}: trials {counts}")
    for task in tasks.values():
        for arm in task.arms.values():
            notes += _duplicate_trials(task, arm)
    if study.changed:
        notes.append(f"changed from the sweep as it is shipped: {' '.join(study.changed)}")
    return notes + [f"{task}: {note}" for task, note in study.task_notes.items()]


def from_sweeps(folders: Sequence[Path]) -> tuple[list[StudyRuns], list[Path], set[Path]]:
    """Comparisons, grids' runs, and all runs that belong to comparisons.

    Of a comparison that was started several times by the same command the last one counts, or the
    last that was finished.
    """
    comparisons: dict[str, list[tuple[bool, str, StudyRuns]]] = {}
    grid_runs = []
    claimed = set()
    for folder in folders:
        try:
            content = read_sweep(folder)
            if content is None:
                continue
            records = [listed_record(folder, run.record) for run in content.runs]
            if isinstance(content, Grid):
                grid_runs += [record for record in records if record.is_dir()]
                continue
            claimed.update(records)
            study = _study(folder, content)
        except (KeyError, ValueError) as error:  # an arm or task that is not described
            got = f"{folder / 'sweep.json'} ({error})"
            expected = "a sweep.json as mixbench writes it"
            raise SettingError("report", expected=expected, got=got) from error
        finished = study.stage == "finished"
        comparisons.setdefault(_same_command(study.command), []).append(
            (finished, content.started, study)
        )
    studies = []
    for starts in comparisons.values():
        study = max(starts, key=lambda start: start[:2])[2]
        if len(starts) > 1:
            study.notes.append(f"{len(starts) - 1} other starts of the same command are set aside")
        studies.append(study)
    return studies, grid_runs, claimed


def previous_invocations(folder: Path, content: Comparison) -> Earlier:
    """What other starts of a sweep took for runs that this start found done.

    Args:
        folder: The sweep's folder, among those of the other starts.
        content: Its `sweep.json`.

    Returns:
        All starts of the same command whose runs are among its.
    """
    mine = {run.record for run in content.runs}
    seconds, launched = 0.0, 0
    for other in folder.parent.iterdir():
        found = None
        if other != folder:
            with suppress(ValueError):  # of another version
                found = read_sweep(other)
        if not isinstance(found, Comparison):
            continue
        records = {run.record for run in found.runs}
        if _same_command(found.command) == _same_command(content.command) and records <= mine:
            seconds += found.wall_seconds or 0.0
            launched += len(records) if found.launched is None else found.launched
    return Earlier(wall_seconds=seconds, launched=launched)


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
