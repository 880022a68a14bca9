"""The sweeper behind `mixbench sweep=S`: choose on selection seeds, judge on fresh ones, report."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from mixbench.collect import MISSING, TaskRuns, sweep_study
from mixbench.config import Settings
from mixbench.errors import RunsFailed, SettingError
from mixbench.records import COMPLETED, RunFolder, config_folders, folder_of, write_json
from mixbench.study import Arm, PlannedRun, Study
from mixbench.summary import make_console, plan_table
from mixbench.sweeper import CheckedSweeper, relative_record, single_values

# What names or repeats a comparison's runs, rather than describing it.
_OWN_ARGUMENTS = ("rerun", "sweep.out")


class ComparisonSweeper(CheckedSweeper):
    """Runs the comparison that `sweep` describes, see `mixbench.study.ComparisonSchema`.

    Every arm's trials run on the selection seeds and never read the test split; the best trial by
    mean validation then runs on the evaluation seeds, where test is read once; the report follows.
    Hydra's launcher executes the runs. Whatever has a record already is not run again.

    Raises:
        SettingError: The description or some run's settings are wrong; nothing was run or written.
        RunsFailed: Some runs did not complete; the others did, and the report tells them apart.
    """

    def sweep(self, arguments: list[str]) -> Any:
        started, clock = datetime.now(timezone.utc), time.perf_counter()
        choices = self.base.hydra.runtime.choices
        if self.base.sweep is None:
            raise SettingError(
                "sweep", expected="a comparison (a YAML with the key sweep)", got=choices.sweep
            )
        node = OmegaConf.to_container(self.base.sweep, resolve=True)
        assert isinstance(node, dict)
        described = {str(key): value for key, value in node.items()}
        self.study = Study(str(choices.sweep), described, str(choices.dataset))
        self.arguments = self._allowed(arguments)
        settings = self._check_all()
        console = make_console()
        if node["preview"]:
            console.print(plan_table(self.study))
            return None
        self.folder = self.new_folder(self.study.name)
        self.settings = settings
        self.planned: list[tuple[PlannedRun, RunFolder]] = []
        self.content: dict[str, Any] = {
            "kind": "comparison",
            "name": self.study.name,
            "command": shlex.join(["mixbench", *self._own(arguments)]),
            "launcher": str(choices["hydra/launcher"]),
            "started": started.isoformat(timespec="seconds"),
            "wall_seconds": None,
            "study": self.study.description(),
        }
        for wave in self.study.selection_waves():
            self._select(wave)
        self._evaluate()
        from mixbench.report.command import write_report  # scipy, which no other start needs

        self._write("finished", wall_seconds=time.perf_counter() - clock)
        write_report([self.folder], out=self.folder, console=console)
        if node["out"] is not None:
            write_report([self.folder], Path(node["out"]), console, ("md", "plots"))
        self._raise_for_lost()
        return None

    def _allowed(self, arguments: Sequence[str]) -> list[str]:
        """The user's overrides; those of what the comparison decides are refused."""
        parser = OverridesParser.create(config_loader=self.context.config_loader)
        decided = self.study.decided_keys()
        for key, text in zip(single_values(arguments, parser), arguments, strict=True):
            if key in decided:
                raise SettingError(
                    key,
                    expected=f"no override: sweep={self.study.name} decides it",
                    got=text,
                    fix="change sweep.arms, sweep.tasks or the seeds, e.g. sweep.eval_seeds=16",
                )
        return list(arguments)

    def _own(self, arguments: Sequence[str]) -> list[str]:
        """The command line that describes this comparison, launcher included."""
        hydra = OmegaConf.to_container(self.base.hydra.overrides.hydra)
        assert isinstance(hydra, list)
        extra = [text for text in hydra if not text.startswith(("hydra.mode=", "hydra.sweep."))]
        kept = [text for text in arguments if text.partition("=")[0] not in _OWN_ARGUMENTS]
        return [*config_folders(self.base.hydra), *kept, *extra]

    def _check_all(self) -> dict[tuple[str, ...], Settings]:
        """Settings of every distinct configuration, by its overrides.

        Inherited values are not known yet: the first of the other arm's grid stands for them.
        """
        checked = {}
        for task in self.study.tasks.values():
            first: dict[str, dict[str, Any]] = {}
            for wave in self.study.selection_waves():
                for arm in wave:
                    runs = self.study.selection_runs(task, arm, first)
                    first[arm.name] = dict(runs[0].values)
                    if arm.name == self.study.ideas[0]:
                        runs += self.study.ablation_runs(task, arm, first[arm.name])
                    for run in runs:
                        key = _configuration(run)
                        if key not in checked:
                            checked[key] = self.compose([*self.arguments, *run.overrides])
        return checked

    def _select(self, wave: Sequence[Arm]) -> None:
        runs = []
        progress = sweep_study(self.folder) if self.planned else None
        for task in self.study.tasks.values():
            chosen = {} if progress is None else _chosen_values(progress.tasks[task.name])
            for arm in wave:
                runs += self.study.selection_runs(task, arm, chosen)
        self._run(runs, "selection", f"selection of {', '.join(arm.name for arm in wave)}")
        unfinished = [run for run, folder in self.planned if folder.read_result() is None]
        if unfinished:
            raise RunsFailed(
                f"{len(unfinished)} selection runs left no record, so that nothing can be chosen; "
                "the same command runs them"
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
        new = [(run, self._folder(run)) for run in runs]
        first = len(self.planned)
        self.planned += new
        self._write(stage)
        jobs = [([*self.arguments, *run.overrides], folder) for run, folder in new]
        self.launch(jobs, first, title)

    def _folder(self, run: PlannedRun) -> RunFolder:
        key = _configuration(run)
        if key not in self.settings:  # inherited values, now known
            self.settings[key] = self.compose([*self.arguments, *run.overrides])
        settings = replace(self.settings[key], seed=run.seed, test=run.overrides[-1] == "test=true")
        return folder_of(settings)

    def _write(self, stage: str, wall_seconds: float | None = None) -> None:
        self.content["stage"] = stage
        self.content["wall_seconds"] = wall_seconds
        self.content["runs"] = [
            {**run.as_dict(), "record": relative_record(folder), "identity": folder.identity}
            for run, folder in self.planned
        ]
        write_json(self.folder / "sweep.json", self.content)

    def _raise_for_lost(self) -> None:
        results = [folder.read_result() for _, folder in self.planned]
        states = [MISSING if result is None else result["status"] for result in results]
        lost = [state for state in states if state != COMPLETED]
        if lost:
            counts = ", ".join(f"{lost.count(state)} {state}" for state in sorted(set(lost)))
            raise RunsFailed(
                f"{len(lost)} of {len(states)} runs did not complete ({counts}); "
                f"`{self.content['command']} rerun=failed` retries those that failed"
            )


def _chosen_values(task: TaskRuns) -> dict[str, Mapping[str, Any]]:
    """Values of the trials that arms have chosen so far."""
    chosen = {arm.name: arm.choose() for arm in task.arms.values()}
    return {
        name: task.arms[name].trials[number].values
        for name, number in chosen.items()
        if number is not None
    }


def _configuration(run: PlannedRun) -> tuple[str, ...]:
    """All of a run but its seed and whether it reads test."""
    return run.overrides[:-2]
