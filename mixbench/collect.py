"""Run records to studies: which arms, trials and seeds there are. Never imports torch.

A comparison's sweep folder says what every run is for. Plain runs and grids do not, so for them it
is inferred, and what was assumed is said.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mixbench.errors import SettingError, nearest
from mixbench.records import COMPLETED, RunFolder, short_name
from mixbench.study import ABLATION, EVALUATION, SELECTION

MISSING = "missing"


@dataclass
class Run:
    """A run that was asked for; `result` is None where it has left none."""

    folder: RunFolder
    seed: int
    result: dict[str, Any] | None
    overrides: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        return MISSING if self.result is None else str(self.result["status"])

    def score(self, split: str) -> float | None:
        """The metric that comparisons use, where the run completed and read the split."""
        if self.result is None or self.status != COMPLETED:
            return None
        value: float | None = self.result["metrics"].get(f"{split}/{self.result['metric']}")
        return value


@dataclass
class Trial:
    """One configuration of an arm and its selection runs."""

    values: dict[str, Any]
    runs: list[Run] = field(default_factory=list)

    def mean_validation(self) -> float | None:
        """Mean validation metric; None where a run is lost, which is the worst of all scores."""
        scores = [run.score("valid") for run in self.runs]
        known = [score for score in scores if score is not None]
        return sum(known) / len(known) if known and len(known) == len(scores) else None


@dataclass
class ArmRuns:
    """An arm's trials, and the runs of the chosen one that judge it.

    Attributes:
        evaluated: Values of the trial that the evaluation runs are of.
        inherited: Keys whose values come from another arm.
        grid: Values of every key that the trials vary.
    """

    name: str
    trials: list[Trial] = field(default_factory=list)
    evaluation: list[Run] = field(default_factory=list)
    evaluated: dict[str, Any] | None = None
    inherited: dict[str, str] = field(default_factory=dict)

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
        those is taken, then the first. Trials that lack a seed are left out.

        Returns:
            Its number; None where no trial has all its runs yet.
        """
        seeds = {run.seed for trial in self.trials for run in trial.runs}
        ranks: dict[int, tuple[float, int, int]] = {}
        for number, trial in enumerate(self.trials):
            results = [run.result for run in trial.runs if run.result is not None]
            if {result["seed"] for result in results} != seeds or not results:
                continue
            mean = trial.mean_validation()
            score = -math.inf
            if mean is not None:
                score = mean if results[0]["higher_is_better"] else -mean
            lost = sum(result["status"] != COMPLETED for result in results)
            ranks[number] = (score, -lost, -number)
        return max(ranks, key=lambda number: ranks[number], default=None)

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
        wall_seconds: How long the sweep took, where it is known.
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
    ablations: dict[str, list[str]] = field(default_factory=dict)


def collect(
    paths: Sequence[Path], baseline: str | None = None, idea: str | None = None
) -> list[StudyRuns]:
    """All studies below some paths: sweep folders, run folders, or folders of them.

    Args:
        paths: Where to look.
        baseline: The arm to beat; None for the sweep's, or for attention among plain runs.
        idea: The arm on trial; None for the sweep's, or for every other arm.

    Raises:
        SettingError: A path does not exist or holds no record; no study has such an arm.
    """
    sweeps: list[Path] = []
    runs: list[Path] = []
    for path in paths:
        if not path.exists():
            raise SettingError("report", expected="a path that exists", got=path)
        found = _below(path)
        if not any(found):
            raise SettingError(
                "report", expected="a folder with run records or sweeps", got=f"{path}, with none"
            )
        sweeps += [sweep for sweep in found[0] if sweep not in sweeps]
        runs += [run for run in found[1] if run not in runs]
    studies, grid_runs = _from_sweeps(sweeps)
    runs += [run for run in grid_runs if run not in runs]
    claimed = {
        run.folder.path
        for study in studies
        for task in study.tasks.values()
        for run in _every_run(task)
    }
    plain = [RunFolder(path, path.name.rpartition("-")[2]) for path in runs if path not in claimed]
    if plain:
        inferred = infer(plain, baseline, idea)
        if inferred.tasks:
            studies.append(inferred)
    known = {arm for study in studies for task in study.tasks.values() for arm in task.arms}
    for key, name in (("--baseline", baseline), ("--idea", idea)):
        if name is not None and name not in known:
            raise SettingError(
                key,
                expected=f"one of {', '.join(sorted(known)) or 'no arm: nothing has completed'}",
                got=name,
                fix=nearest(name, known),
            )
    for study in studies:
        if study.planned:
            _reassign(study, baseline, idea)
    return studies


def sweep_study(folder: Path) -> StudyRuns:
    """A comparison's study from its sweep folder, as far as its runs have come."""
    content = json.loads((folder / "sweep.json").read_text())
    description = content["study"]
    tasks: dict[str, TaskRuns] = {}
    for name, margin in description["tasks"].items():
        arms = {
            arm: ArmRuns(arm, inherited=dict(inherit))
            for arm, inherit in description["arms"].items()
        }
        tasks[name] = TaskRuns(name, margin, arms)
    runs_folder = folder.parent.parent / "runs"
    for planned in content["runs"]:
        # The record's name only: a sweep.json from elsewhere must not lead outside its own folder.
        path = runs_folder / Path(planned["record"]).name
        run_folder = RunFolder(path, path.name.rpartition("-")[2])
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
        wall_seconds=content["wall_seconds"],
        ablations=description["ablations"],
    )


def infer(
    folders: Iterable[RunFolder], baseline: str | None = None, idea: str | None = None
) -> StudyRuns:
    """A study of plain runs.

    Runs of one dataset configuration are a task, those of one mixer an arm, those that differ in
    anything but the seed its trials.
    """
    notes = []
    unfinished = 0
    newest: dict[str, Run] = {}
    older = 0
    for folder in folders:
        result = folder.read_result()
        if result is None:
            unfinished += 1
            continue
        run = Run(folder, result["seed"], result)
        key = _key(result["config"])
        if key in newest:
            older += 1
            other = newest[key].result
            assert other is not None
            if other["started"] >= result["started"]:
                continue
        newest[key] = run
    tasks = _group(list(newest.values()))
    names = {arm for task in tasks.values() for arm in task.arms}
    if baseline is None:
        baseline = "attention" if "attention" in names else min(names, default="")
    ideas = [idea] if idea is not None else sorted(names - {baseline})
    if names:
        notes.append(
            "inferred from plain runs: an arm is a mixer, a trial is whatever else differs; "
            f"the baseline is {baseline}"
        )
    shared = False
    for task in tasks.values():
        for arm in task.arms.values():
            shared = _split_roles(arm) or shared
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
    return StudyRuns(
        name="runs",
        title="plain runs",
        ideas=ideas,
        baselines=[baseline] if baseline else [],
        tasks=tasks,
        planned=False,
        notes=notes,
    )


def flat(node: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """A nested mapping with dotted keys."""
    out: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{path}{key}.")
        else:
            out[f"{path}{key}"] = value
    return out


def _below(path: Path) -> tuple[list[Path], list[Path]]:
    """Sweep folders and run folders at or below a path."""
    path = path.absolute()
    if path.is_file():
        path = path.parent
    if (path / "sweep.json").is_file():
        return [path], []
    if (path / "result.json").is_file() or (path / "run.log").is_file():
        return [], [path]
    sweeps, runs = [], []
    for child in sorted(path.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            below = _below(child)
            sweeps += below[0]
            runs += below[1]
    return sweeps, runs


def _from_sweeps(folders: Sequence[Path]) -> tuple[list[StudyRuns], list[Path]]:
    """Comparisons, the last one of each that was started several times, and grids' runs."""
    comparisons: dict[str, tuple[str, Path]] = {}
    grid_runs = []
    for folder in folders:
        content = json.loads((folder / "sweep.json").read_text())
        if content["kind"] == "comparison":
            key = json.dumps([content["name"], content["study"]], sort_keys=True)
            comparisons[key] = max(comparisons.get(key, ("", folder)), (content["started"], folder))
        else:
            names = [Path(run["record"]).name for run in content["runs"]]
            grid_runs += [folder.parent.parent / "runs" / name for name in names]
    return [sweep_study(folder) for _, folder in comparisons.values()], grid_runs


def _every_run(task: TaskRuns) -> list[Run]:
    ablations = [run for runs in task.ablations.values() for run in runs]
    return [run for arm in task.arms.values() for run in arm.runs] + ablations


def _reassign(study: StudyRuns, baseline: str | None, idea: str | None) -> None:
    """Roles that the user gave instead of the sweep's."""
    arms = {arm for task in study.tasks.values() for arm in task.arms}
    if baseline in arms and baseline is not None and study.baselines != [baseline]:
        study.notes.append(f"--baseline {baseline} instead of {', '.join(study.baselines)}")
        study.baselines = [baseline]
        study.ideas = [name for name in study.ideas if name != baseline]
    if idea in arms and idea is not None and study.ideas != [idea]:
        study.notes.append(f"--idea {idea} instead of {', '.join(study.ideas)}")
        study.ideas = [idea]
        study.baselines = [name for name in study.baselines if name != idea]


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _group(runs: Sequence[Run]) -> dict[str, TaskRuns]:
    by_task: dict[str, list[Run]] = {}
    for run in runs:
        by_task.setdefault(_key(_config(run)["dataset"]), []).append(run)
    datasets = {key: _config(group[0])["dataset"] for key, group in by_task.items()}
    tasks = {}
    for key, group in by_task.items():
        name = short_name(datasets[key])
        alike = [dataset for dataset in datasets.values() if short_name(dataset) == name]
        varying = _varying([flat(dataset) for dataset in alike])
        label = ", ".join([name, *(f"{k}={datasets[key][k]}" for k in varying)])
        arms: dict[str, ArmRuns] = {}
        for arm, members in _by_mixer(group).items():
            arms[arm] = ArmRuns(arm, _trials(members))
        tasks[label] = TaskRuns(label, None, arms)
    return tasks


def _by_mixer(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by mixer: by its usual name, or in full where one name would stand for two."""
    targets = sorted({_config(run)["mixer"]["_target_"] for run in runs})
    names = [short_name({"_target_": target}) for target in targets]
    if len(set(names)) < len(names):
        names = targets
    return {
        name: [run for run in runs if _config(run)["mixer"]["_target_"] == target]
        for name, target in zip(names, targets, strict=True)
    }


def _trials(runs: Sequence[Run]) -> list[Trial]:
    configs: dict[str, dict[str, Any]] = {}
    members: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        config = {k: v for k, v in _config(run).items() if k not in ("seed", "dataset", "test")}
        key = _key(config)
        configs[key] = flat(config)
        members.setdefault(key, []).append(run)
    varying = [key for key in _varying(list(configs.values())) if key != "optimizer.lr"]
    trials = [Trial({k: configs[key].get(k) for k in varying}, members[key]) for key in configs]
    return sorted(trials, key=lambda trial: [_order(value) for value in trial.values.values()])


def _varying(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = sorted({key for config in configs for key in config})
    return [key for key in keys if len({_key({"": c.get(key)}) for c in configs}) > 1]


def _order(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, before everything else by its text."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (not number, float(value) if number else 0.0, str(value))


def _config(run: Run) -> dict[str, Any]:
    assert run.result is not None
    config = run.result["config"]
    assert isinstance(config, dict)
    return config


def _split_roles(arm: ArmRuns) -> bool:
    """Tell selection from evaluation runs; True if the same runs have to be both.

    Runs that read no test split (`test=false`) are selection runs. Where an arm has none, all of
    its runs choose and those of the chosen trial judge.
    """
    tested = {id(trial): [r for r in trial.runs if _config(r)["test"]] for trial in arm.trials}
    selecting = any(len(tested[id(trial)]) < len(trial.runs) for trial in arm.trials)
    if selecting:
        for trial in arm.trials:
            trial.runs = [run for run in trial.runs if not _config(run)["test"]]
        kept = [trial for trial in arm.trials if trial.runs]
    else:
        kept = arm.trials
    arm.trials = kept
    chosen = arm.choose()
    if chosen is not None:
        arm.evaluation = tested[id(kept[chosen])]
        arm.evaluated = kept[chosen].values
    return not selecting and len(arm.trials) > 1
