"""Run records to studies: which arms, trials and seeds there are. Never imports torch.

A comparison's sweep folder says what every run is for. Plain runs and grids do not, so for them it
is inferred, and what was assumed is said.
"""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mixbench.errors import SettingError, nearest
from mixbench.overrides import flat, is_number
from mixbench.records import (
    COMPLETED,
    RunFolder,
    bounded_text,
    listed_record,
    reads_test,
    short_name,
    strict_json,
)
from mixbench.study import ABLATION, EVALUATION, SELECTION

MISSING = "missing"

_COMPARISON_KEYS = {"name", "command", "started", "stage", "study"}


@dataclass
class Run:
    """A run that was asked for; `result` is None where it has left none."""

    folder: RunFolder
    seed: int
    result: Mapping[str, Any] | None
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
                score = mean if results[0]["higher_is_better"] else -mean
            lost = sum(result["status"] != COMPLETED for result in results)
            ranks[number] = (score, -lost, -number)
        return max(ranks, key=lambda number: ranks[number], default=None)

    @property
    def shared_seeds(self) -> set[int]:
        """Seeds for which every trial has a result."""
        sets = [{run.seed for run in t.runs if run.result is not None} for t in self.trials]
        return set.intersection(*sets) if sets else set()

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
        found = _below(path.resolve())
        if not any(found):
            raise SettingError(
                "report", expected="a folder with run records or sweeps", got=f"{path}, with none"
            )
        sweeps += [sweep for sweep in found[0] if sweep not in sweeps]
        runs += [run for run in found[1] if run not in runs]
    studies, grid_runs, claimed = _from_sweeps(sweeps)
    runs += [run for run in grid_runs if run not in runs]
    plain = [RunFolder.at(path) for path in runs if path not in claimed]
    if plain:
        inferred = infer(plain, baseline, idea)
        if inferred.tasks or not studies:
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
            notes += _padded(task, arm)
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
            notes += _left_out(task, arm)
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


def _below(path: Path) -> tuple[list[Path], list[Path]]:
    """Sweep folders and run folders at or below a path."""
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


def _from_sweeps(folders: Sequence[Path]) -> tuple[list[StudyRuns], list[Path], set[Path]]:
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


def earlier_starts(folder: Path, content: Mapping[str, Any]) -> dict[str, float]:
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


def _reassign(study: StudyRuns, baseline: str | None, idea: str | None) -> None:
    """Roles that the user gave instead of the sweep's."""
    arms = {arm for task in study.tasks.values() for arm in task.arms}
    if baseline is not None and baseline in arms and study.baselines != [baseline]:
        study.notes.append(f"--baseline {baseline} instead of {', '.join(study.baselines)}")
        study.baselines = [baseline]
    if idea is not None and idea in arms and study.ideas != [idea]:
        study.notes.append(f"--idea {idea} instead of {', '.join(study.ideas)}")
        study.ideas = [idea]
    for name in set(study.ideas) & set(study.baselines):
        # The role that was given stands; the other one is left to other arms.
        (study.baselines if name == idea else study.ideas).remove(name)
    if not study.ideas or not study.baselines:
        given = "--idea" if idea is not None and not study.baselines else "--baseline"
        raise SettingError(
            given,
            expected="another arm than the one in the other role",
            got=idea if given == "--idea" else baseline,
            fix="give both --idea and --baseline",
        )


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _group(runs: Sequence[Run]) -> dict[str, TaskRuns]:
    by_task: dict[str, list[Run]] = {}
    for run in runs:
        by_task.setdefault(_key(_config(run)["dataset"]), []).append(run)
    datasets = {key: _config(group[0])["dataset"] for key, group in by_task.items()}
    mixers = _mixer_names(runs)
    tasks = {}
    for key, group in by_task.items():
        name = short_name(datasets[key])
        alike = [dataset for dataset in datasets.values() if short_name(dataset) == name]
        varying = _varying([flat(dataset) for dataset in alike])
        values = flat(datasets[key])
        label = ", ".join([name, *(f"{k}={values.get(k)}" for k in varying)])
        arms: dict[str, ArmRuns] = {}
        for target, arm in mixers.items():
            members = [run for run in group if _config(run)["mixer"]["_target_"] == target]
            if members:
                arms[arm] = ArmRuns(arm, _trials(members))
        tasks[label] = TaskRuns(label, None, arms)
    return tasks


def _mixer_names(runs: Sequence[Run]) -> dict[str, str]:
    """What each mixer is called: by its usual name, or in full where that is another's too.

    Ours keep theirs, so that attention is the baseline whatever stands beside it.
    """
    targets = sorted({_config(run)["mixer"]["_target_"] for run in runs})
    short = {target: short_name({"_target_": target}) for target in targets}
    number = Counter(short.values())
    return {
        target: name if number[name] == 1 or target.startswith("mixbench.") else target
        for target, name in short.items()
    }


def _trials(runs: Sequence[Run]) -> list[Trial]:
    configs: dict[str, dict[str, Any]] = {}
    members: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        config = {k: v for k, v in _config(run).items() if k not in ("seed", "dataset", "test")}
        key = _key(config)
        configs[key] = flat(config)
        members.setdefault(key, []).append(run)
    varying = _varying(list(configs.values()))
    if "lr" in varying:  # which the optimizer's interpolates
        varying = [key for key in varying if key != "optimizer.lr"]
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
    config = run.result["config"]
    assert isinstance(config, dict)
    return config


def _split_roles(arm: ArmRuns) -> None:
    """Tell selection from evaluation runs.

    Runs that read no test split (`test=false`) are selection runs. Where an arm has none, all of
    its runs choose and those of the chosen trial judge.
    """
    tested = {id(trial): [r for r in trial.runs if reads_test(_config(r))] for trial in arm.trials}
    if any(len(tested[id(trial)]) < len(trial.runs) for trial in arm.trials):
        for trial in arm.trials:
            trial.runs = [run for run in trial.runs if not reads_test(_config(run))]
        arm.trials = [trial for trial in arm.trials if trial.runs]
    chosen = arm.choose()
    if chosen is not None:
        arm.evaluation = tested[id(arm.trials[chosen])]
        arm.evaluated = arm.trials[chosen].values


def _padded(task: TaskRuns, arm: ArmRuns) -> list[str]:
    """Trials whose runs came to the same losses to the last digit: they trained the same thing."""
    alike: dict[str, list[str]] = {}
    for trial in arm.trials:
        metrics = {run.seed: run.result["metrics"] for run in trial.runs if run.result is not None}
        if metrics and all("train/loss" in each for each in metrics.values()):
            values = ", ".join(f"{key}={value}" for key, value in trial.values.items())
            alike.setdefault(json.dumps(metrics, sort_keys=True), []).append(values)
    return [
        f"{task.name}, {arm.name}: {' and '.join(values)} trained the same thing, to the last "
        "digit of every loss: one of these trials was for nothing"
        for values in alike.values()
        if len(values) > 1
    ]


def _left_out(task: TaskRuns, arm: ArmRuns) -> list[str]:
    """Seeds that have no part in an arm's choice, since some trial lacks them."""
    seeds = {run.seed for trial in arm.trials for run in trial.runs}
    if len(arm.trials) < 2 or arm.shared_seeds == seeds:
        return []
    shared = ", ".join(map(str, sorted(arm.shared_seeds)))
    told = f"only seeds {shared} choose" if shared else "nothing can be chosen"
    return [f"{task.name}, {arm.name}: trials differ in their seeds, {told}"]
