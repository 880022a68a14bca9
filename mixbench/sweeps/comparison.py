"""The sweeper behind `mixbench sweep=S`: choose on selection seeds, judge on fresh ones, report."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from msgspec import structs
from omegaconf import OmegaConf

from mixbench.compare.planned import previous_invocations, sweep_study
from mixbench.compare.studies import MISSING, TaskRuns
from mixbench.config.check import without_hydra
from mixbench.config.chosen import chosen
from mixbench.config.comparison_schema import SELECTION
from mixbench.config.settings import NOT_IN_HASH, Settings
from mixbench.core.errors import RunsFailed, SettingError
from mixbench.core.files import make_folder
from mixbench.core.interruption import Interrupted
from mixbench.core.overrides import override_key
from mixbench.display.console import make_console
from mixbench.display.run_tables import losses_table
from mixbench.launch.base import check_launcher
from mixbench.records.folder import RunFolder
from mixbench.records.identity import folder_of
from mixbench.records.result import FAILED
from mixbench.records.sweep import Comparison, write_sweep
from mixbench.sweeps.arms import Arm, PlannedRun, Task
from mixbench.sweeps.base import OWN_ARGUMENTS, CheckedSweeper, refuse_grid_of_loggers
from mixbench.sweeps.plan_table import plan_table
from mixbench.sweeps.search import Range, Space, edges, extended
from mixbench.sweeps.study import Study


class ComparisonSweeper(CheckedSweeper):
    """Runs the comparison that `sweep` describes, see `ComparisonSchema`.

    Every arm's trials run on the selection seeds and never read the test split; the best trial by
    mean validation then runs on the evaluation seeds, where test is read once; the report follows.
    Hydra's launcher executes the runs. Whatever has a record already is not run again.

    Raises:
        SettingError: The description or some run's settings are wrong; nothing was run or written.
        RunsFailed: Some runs did not complete; the others did, and the report tells them apart.
    """

    def sweep(self, arguments: list[str]) -> Any:
        started, self.clock = datetime.now(timezone.utc), time.perf_counter()
        choices = self.base.hydra.runtime.choices
        node = OmegaConf.to_container(self.base.sweep, resolve=True)
        assert isinstance(node, dict)
        if not node["preview"]:
            check_launcher(self.base.hydra)
        described = {str(key): value for key, value in node.items()}
        dataset = chosen(self.base.hydra)["dataset"].name
        self.study = Study(str(choices.sweep), described, dataset)
        self.arguments = self._allowed(arguments)
        self._composed: dict[tuple[str, ...], tuple[Settings, bool]] = {}
        self._check_all()
        console = make_console()
        if node["preview"]:
            console.print(plan_table(self.study))
            return None
        if node["out"] is not None:
            make_folder(Path(node["out"]), key="sweep.out")
        self.folder = self.new_folder(self.study.name)
        self.planned: list[tuple[PlannedRun, RunFolder]] = []
        self.content = Comparison(
            name=self.study.name,
            command=shlex.join(["mixbench", *self.reproducing_arguments(arguments)]),
            launcher=str(choices["hydra/launcher"]),
            started=started.isoformat(timespec="seconds"),
            stage=SELECTION,
            study=self.study.description(self._changes(arguments)),
            runs=[],
        )
        try:
            for wave in self.study.selection_stages():
                self._select(wave)
            if self.study.search.kind == "random":
                self._extend()
            self._evaluate()
        except Interrupted:
            self._write("interrupted")
            raise
        from mixbench.report.write import write_report  # scipy, which no other start needs

        self._write("finished")
        write_report([self.folder], out=self.folder, console=console)
        if node["out"] is not None:
            write_report([self.folder], Path(node["out"]), console, ("md", "plots"))
        self._raise_for_lost()
        return None

    def _allowed(self, arguments: Sequence[str]) -> list[str]:
        """The user's overrides; those of what the comparison decides are refused."""
        parser = OverridesParser.create(config_loader=self.context.config_loader)
        decided = self.study.fixed_keys()
        for key, text in zip(_single_values(arguments, parser), arguments, strict=True):
            if key in decided:
                raise SettingError(
                    key,
                    expected=f"no override: sweep={self.study.name} decides it",
                    got=text,
                    fix="change sweep.arms, sweep.tasks or the seeds, e.g. sweep.eval_seeds=16",
                )
        return list(arguments)

    def _changes(self, arguments: Sequence[str]) -> list[str]:
        """Overrides that change what the sweep's YAML describes."""
        keys = ("sweep", "device", "cpu_capability", "threads", *NOT_IN_HASH, *OWN_ARGUMENTS)
        return [
            text
            for text in arguments
            if override_key(text) not in keys and not override_key(text).startswith("logger.")
        ]

    def _check_all(self) -> None:
        """Build every distinct configuration, and see that each arm's trials really differ.

        Inherited values are not known yet: the first of the other arm's grid stands for them.
        """
        for task in self.study.tasks.values():
            first: dict[str, dict[str, Any]] = {}
            for wave in self.study.selection_stages():
                for arm in wave:
                    runs = self.study.selection_runs(task, arm, first)
                    first[arm.name] = dict(runs[0].values)
                    self._check_trials(arm, [run for run in runs if run.seed == runs[0].seed])
                    if arm.name == self.study.ideas[0]:
                        for run in self.study.ablation_runs(task, arm, first[arm.name]):
                            self._settings(run)

    def _check_trials(self, arm: Arm, runs: Sequence[PlannedRun]) -> None:
        """Refuse trials that train the same thing: they would pad the arm's budget."""
        seen: dict[str, Mapping[str, Any]] = {}
        for run in runs:
            text = json.dumps(self._settings(run).result_settings(), sort_keys=True)
            if text in seen:
                raise SettingError(
                    f"sweep.arms.{arm.name}.{self.study.search.where}",
                    expected="trials that differ in what is trained",
                    got=f"{dict(seen[text])} and {dict(run.values)}, which do not",
                )
            seen[text] = run.values

    def _settings(self, run: PlannedRun) -> Settings:
        """A run's settings; each configuration is composed and built once, whatever the seed."""
        key = run.overrides[:-2]  # all but the seed and whether test is read
        if key not in self._composed:
            texts = [*self.arguments, *run.overrides]
            try:
                cfg = self.compose(texts)
                own = OmegaConf.to_yaml(without_hydra(cfg))
                by_seed = re.search(r"\$\{[^}]*\b(seed|test)\b", own) is not None
                self._composed[key] = (self.build(cfg), by_seed)
            except SettingError as error:
                where = f"in task {run.task}, arm {run.arm}"
                raise SettingError(
                    error.key,
                    expected=error.expected,
                    got=error.got,
                    fix=f"{error.fix} ({where})" if error.fix else where,
                ) from error
        settings, by_seed = self._composed[key]
        if by_seed:  # the user's configuration makes more of the seed than the seed itself
            return self.check(self.compose([*self.arguments, *run.overrides]))
        return replace(settings, seed=run.seed, test=run.overrides[-1] == "test=true")

    def _select(self, wave: Sequence[Arm]) -> None:
        runs = []
        progress = sweep_study(self.folder) if self.planned else None
        for task in self.study.tasks.values():
            chosen = {} if progress is None else _chosen_values(progress.tasks[task.name])
            for arm in wave:
                runs += self.study.selection_runs(task, arm, chosen)
        self._run(runs, "selection", f"selection of {', '.join(arm.name for arm in wave)}")
        self._refuse_gaps()

    def _extend(self) -> None:
        """Look beyond the edges of a random search where the best trials lie on them.

        All arms of such a task get as many trials more, so that their budgets stay equal.
        """
        tasks, arms = self.study.tasks.values(), self.study.arms.values()
        ranges = {(task.name, arm.name): arm.space for task in tasks for arm in arms}
        on_edge: dict[str, dict[str, list[str]]] = {}
        for stage in range(1, self.study.search.extensions + 2):
            runs: list[PlannedRun] = []
            progress = sweep_study(self.folder)
            for task in tasks:
                found = progress.tasks[task.name].arms
                chosen = _chosen_values(progress.tasks[task.name])
                open_edges = {
                    arm.name: self._open_edges(task, arm, ranges[task.name, arm.name], chosen)
                    for arm in arms
                }
                on_edge[task.name] = {name: list(keys) for name, keys in open_edges.items()}
                if stage > self.study.search.extensions or not any(open_edges.values()):
                    continue
                for arm in arms:
                    tried = [trial.values for trial in found[arm.name].trials]
                    trials, ranges[task.name, arm.name] = self.study.extension(
                        arm, ranges[task.name, arm.name], open_edges[arm.name], tried, stage
                    )
                    runs += self.study.selection_runs(task, arm, {}, trials, len(tried))
            if not runs:
                break
            self._run(runs, "selection", f"beyond the edges, extension {stage}")
            self._refuse_gaps()
        study = structs.replace(self.content.study, on_edge=on_edge)
        self.content = structs.replace(self.content, study=study)

    def _open_edges(
        self, task: Task, arm: Arm, ranges: Space, chosen: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, str]:
        """The edges that an arm's chosen trial lies on, but for those where a setting ends."""
        values = chosen.get(arm.name, {})
        found = {}
        for key, edge in edges(ranges, values).items():
            _, widened = extended(ranges, {key: edge})
            inside, outside = ranges[key], widened[key]
            if inside == outside:
                continue
            assert isinstance(outside, Range)
            end = outside.low if edge == "low" else outside.high
            (run, *_) = self.study.selection_runs(task, arm, {}, [{**values, key: end}])
            try:
                self._settings(run)
            except SettingError:
                continue  # the setting cannot be larger, or smaller
            found[key] = edge
        return found

    def _refuse_gaps(self) -> None:
        unfinished = [run for run, folder in self.planned if folder.read_result() is None]
        if unfinished:
            raise RunsFailed(
                f"{len(unfinished)} selection runs left no record, so that nothing can be chosen; "
                f"the same command runs them{self.first_error()}"
            )

    def _evaluate(self) -> None:
        runs = []
        progress = sweep_study(self.folder)  # the report's own reading of the records
        for task in self.study.tasks.values():
            for arm in self.study.arms.values():
                found = progress.tasks[task.name].arms[arm.name]
                number = found.choose()
                assert number is not None
                values = found.trials[number].values
                runs += self.study.evaluation_runs(task, arm, number, values)
                if arm.name == self.study.ideas[0]:
                    runs += self.study.ablation_runs(task, arm, values)
        self._run(runs, "evaluation", "evaluation of the chosen configurations")

    def _run(self, runs: Sequence[PlannedRun], stage: str, title: str) -> None:
        new = [(run, folder_of(self._settings(run))) for run in runs]
        first = len(self.planned)
        self.planned += new
        self._write(stage)
        jobs = [([*self.arguments, *run.overrides], folder) for run, folder in new]
        self.launch(jobs, first, title)

    def _write(self, stage: str) -> None:
        self.content = structs.replace(
            self.content,
            stage=stage,
            wall_seconds=time.perf_counter() - self.clock,
            launched=self.launched,
            runs=[run.listed(folder) for run, folder in self.planned],
        )
        earlier = previous_invocations(self.folder, self.content)
        self.content = structs.replace(self.content, earlier=earlier)
        write_sweep(self.folder, self.content)

    def _raise_for_lost(self) -> None:
        """Diverged runs are results, and the report tells of them; others leave a gap."""
        results = [folder.read_result() for _, folder in self.planned]
        states = [MISSING if result is None else result.status for result in results]
        lost = [state for state in states if state in (FAILED, MISSING)]
        if lost:
            table = losses_table(
                [
                    (run.overrides, result, folder)
                    for (run, folder), result in zip(self.planned, results, strict=True)
                ],
                self.reasons,
            )
            if table is not None:
                make_console().print(table)
            counts = ", ".join(f"{lost.count(state)} {state}" for state in sorted(set(lost)))
            raise RunsFailed(
                f"{len(lost)} of {len(states)} runs have no result ({counts}); "
                f"`{self.content.command} rerun=failed` makes them{self.first_error()}"
            )


def _single_values(arguments: Sequence[str], parser: OverridesParser) -> list[str]:
    """The keys of overrides.

    Raises:
        SettingError: One of them asks for several values.
    """
    keys = []
    overrides = parser.parse_overrides(list(arguments))
    refuse_grid_of_loggers(overrides)
    for override in overrides:
        if override.is_sweep_override():
            raise SettingError(
                override.get_key_element(),
                expected="one value: a comparison's grids are in sweep.arms",
                got=override.input_line,
            )
        keys.append(override.key_or_group)
    return keys


def _chosen_values(task: TaskRuns) -> dict[str, Mapping[str, Any]]:
    """Values of the trials that arms have chosen so far."""
    chosen = {arm.name: arm.choose() for arm in task.arms.values()}
    return {
        name: task.arms[name].trials[number].values
        for name, number in chosen.items()
        if number is not None
    }
