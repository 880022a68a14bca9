"""A comparison inferred from plain runs and grids. Never imports torch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mixbench.compare.studies import ArmRuns, Run, StudyRuns, TaskRuns, Trial
from mixbench.core.errors import SettingError
from mixbench.core.overrides import flat, is_number
from mixbench.records.folder import RunFolder


def infer(
    folders: Iterable[RunFolder], baseline: str | None = None, idea: str | None = None
) -> StudyRuns:
    """A study of plain runs.

    Runs of one dataset configuration are a task, those of one mixer an arm, those that differ in
    anything but the seed its trials.
    """
    notes = []
    unfinished = 0
    unreadable = []
    newest: dict[str, Run] = {}
    older = 0
    for folder in folders:
        result = folder.read_result()
        if result is None:
            if folder.result.exists():
                unreadable.append(folder.path.name)
            else:
                unfinished += 1
            continue
        run = Run(folder, result.seed, result)
        key = _key(result.config)
        if key in newest:
            older += 1
            other = newest[key].result
            assert other is not None
            if other.started >= result.started:
                continue
        newest[key] = run
    tasks = _group(list(newest.values()))
    names = {arm for task in tasks.values() for arm in task.arms}
    if baseline is None:
        baseline = "attention" if "attention" in names else min(names, default="")
    ideas = [idea] if idea is not None else sorted(names - {baseline})
    if idea is not None and idea == baseline:
        raise SettingError(
            "--idea", expected="another arm than the baseline", got=idea, fix="give --baseline too"
        )
    if names:
        notes.append(
            "inferred from plain runs: an arm is a mixer, a trial is whatever else differs; "
            f"the baseline is {baseline}"
        )
    shared = False
    for task in tasks.values():
        for arm in task.arms.values():
            _split_roles(arm)
            judging = {run.seed for run in arm.evaluation}
            shared = shared or (len(arm.trials) > 1 and bool(arm.shared_seeds & judging))
            notes += _unshared_seeds(task, arm)
        counts = {arm.name: len(arm.trials) for arm in task.arms.values()}
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{name} {n}" for name, n in counts.items())
            notes.append(f"unequal budgets on {task.name}: trials {said}")
    if shared:
        notes.append(
            "the seeds that chose a configuration also judge it: the choice is by validation, "
            "but a planned comparison (mixbench sweep=...) uses fresh seeds"
        )
    if older:
        notes.append(f"{older} older records of the same settings (other code) are set aside")
    if unfinished:
        notes.append(f"{unfinished} runs have no result: unfinished or interrupted")
    if unreadable:
        notes.append(f"results that cannot be read, left out: {', '.join(unreadable)}")
    return StudyRuns(
        name="runs",
        title="plain runs",
        ideas=ideas,
        baselines=[baseline] if baseline else [],
        tasks=tasks,
        planned=False,
        notes=notes,
    )


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _group(runs: Sequence[Run]) -> dict[str, TaskRuns]:
    by_task: dict[str, list[Run]] = {}
    for run in runs:
        by_task.setdefault(_key(_config(run)["dataset"]), []).append(run)
    datasets = {key: flat(_config(group[0])["dataset"]) for key, group in by_task.items()}
    names = {key: _names(group[0])["dataset"] for key, group in by_task.items()}
    mixers = _mixer_names(runs)
    tasks = {}
    for key, group in by_task.items():
        alike = [datasets[other] for other, name in names.items() if name == names[key]]
        varying = _varying(alike)
        label = ", ".join([names[key], *(f"{k}={datasets[key].get(k)}" for k in varying)])
        arms: dict[str, ArmRuns] = {}
        for mixer, arm in mixers.items():
            members = [run for run in group if _mixer(run) == mixer]
            if members:
                arms[arm] = ArmRuns(arm, _trials(members))
        tasks[label] = TaskRuns(label, None, arms)
    return tasks


def _mixer_names(runs: Sequence[Run]) -> dict[tuple[str, str], str]:
    """What each mixer is called: by its name, or by its class where that is another's name too.

    Ours keep theirs, so that attention is the baseline whatever stands beside it.
    """
    mixers = sorted(set(map(_mixer, runs)))
    number = Counter(name for name, _ in mixers)
    return {
        (name, target): name if number[name] == 1 or target.startswith("mixbench.") else target
        for name, target in mixers
    }


def _mixer(run: Run) -> tuple[str, str]:
    """A run's mixer, by name and class."""
    return _names(run)["mixer"], _config(run)["mixer"]["_target_"]


def _trials(runs: Sequence[Run]) -> list[Trial]:
    configs: dict[str, dict[str, Any]] = {}
    members: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        config = {k: v for k, v in _config(run).items() if k not in ("seed", "dataset", "test")}
        key = _key(config)
        configs[key] = flat(config)
        members.setdefault(key, []).append(run)
    varying = _varying(list(configs.values()))
    trials = [Trial({k: configs[key].get(k) for k in varying}, members[key]) for key in configs]
    return sorted(trials, key=lambda trial: [_order(value) for value in trial.values.values()])


def _varying(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = sorted({key for config in configs for key in config})
    return [key for key in keys if len({_key({"": c.get(key)}) for c in configs}) > 1]


def _order(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, before everything else by its text."""
    number = is_number(value)
    return (not number, float(value) if number else 0.0, str(value))


def _config(run: Run) -> dict[str, Any]:
    assert run.result is not None
    return run.result.config


def _names(run: Run) -> dict[str, str]:
    assert run.result is not None
    return run.result.names


def _reads_test(run: Run) -> bool:
    assert run.result is not None
    return run.result.reads_test


def _split_roles(arm: ArmRuns) -> None:
    """Tell selection from evaluation runs.

    Runs that read no test split (`test=false`) are selection runs. Where an arm has none, all of
    its runs choose and those of the chosen trial judge.
    """
    tested = {id(trial): list(filter(_reads_test, trial.runs)) for trial in arm.trials}
    if any(len(tested[id(trial)]) < len(trial.runs) for trial in arm.trials):
        for trial in arm.trials:
            trial.runs = [run for run in trial.runs if not _reads_test(run)]
        arm.trials = [trial for trial in arm.trials if trial.runs]
    chosen = arm.choose()
    if chosen is not None:
        arm.evaluation = tested[id(arm.trials[chosen])]
        arm.evaluated = arm.trials[chosen].values


def _unshared_seeds(task: TaskRuns, arm: ArmRuns) -> list[str]:
    """Seeds that have no part in an arm's choice, since some trial lacks them."""
    seeds = {run.seed for trial in arm.trials for run in trial.runs}
    if len(arm.trials) < 2 or arm.shared_seeds == seeds:
        return []
    shared = ", ".join(map(str, sorted(arm.shared_seeds)))
    told = f"only seeds {shared} choose" if shared else "nothing can be chosen"
    return [f"{task.name}, {arm.name}: trials differ in their seeds, {told}"]
