"""What our sweepers share: jobs are checked before any is run, and records are watched."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from mixbench.config.check import check, several_loggers
from mixbench.config.compose import config_folders
from mixbench.config.hardware import found_cpu_capability, found_device
from mixbench.config.settings import Settings
from mixbench.core.errors import (
    CannotWrite,
    JobRaised,
    RunLockedByAnotherProcess,
    RunsFailed,
    SettingError,
    WorkerLost,
)
from mixbench.core.files import make_folder
from mixbench.core.interruption import StopSignalPoller, sweeping
from mixbench.core.overrides import as_override, override_key
from mixbench.display.console import make_console
from mixbench.display.progress import sweep_display
from mixbench.launch.base import is_remote
from mixbench.records.folder import RunFolder, needs_rerun

Job = tuple[Sequence[str], RunFolder]


# What names or repeats a sweep's runs, rather than describing it.
OWN_ARGUMENTS = ("rerun", "sweep.out", "sweep.preview")


# How often a sweep looks whether another process has finished a run.
_POLL_SECONDS = 0.5


# Said of a run whose job has ended well.
_RECORD_NOT_FOUND = (
    "its job ended, but the record is not here: does it write into the same folder, with the same "
    "mixbench?"
)


def refuse_grid_of_loggers(overrides: Sequence[Override]) -> None:
    """Refuse to make the same runs once for each of several loggers, or of a logger's knobs.

    Raises:
        SettingError: That is what was typed.
    """
    for override in overrides:
        key, value = override.key_or_group, str(override.input_line).partition("=")[2]
        if key.partition(".")[0] != "logger" or not override.is_sweep_override():
            continue
        if key == "logger":
            raise several_loggers(value)
        raise SettingError(key, expected="one value: it changes no run's result", got=value)


class CheckedSweeper(Sweeper):
    """What our sweepers share: jobs are checked before any is run, and records are watched.

    Each run leaves its record where a single run would, so that a sweep takes up what exists. The
    sweep's own folder, `OUTPUT_DIR/sweeps/<name>-<time>-<random>`, says in `sweep.json` which runs
    it has.
    """

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.launched = 0
        self.job_errors: list[RunsFailed] = []
        self.reasons: dict[RunFolder, str] = {}
        self.elsewhere: set[RunFolder] = set()  # of the last launch, what other processes are at
        self.context = hydra_context
        self.task_function = task_function
        self.base = config

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """A job's configuration, with the `hydra` node."""
        return self.context.config_loader.load_sweep_config(self.base, list(overrides))

    def build(self, cfg: DictConfig) -> Settings:
        """A job's settings, built once to see that its constructors accept them.

        Raises:
            SettingError: They do not.
        """
        from mixbench.runs.build import Experiment

        settings = self.check(cfg)
        Experiment(replace(settings, device="cpu"))
        return settings

    def check(self, cfg: DictConfig) -> Settings:
        """A job's settings, see `config.check`."""
        return check(cfg, cfg.hydra, elsewhere=is_remote(self.base.hydra))

    def new_folder(self, name: str) -> Path:
        """Make the sweep's folder, with the configuration that it starts from."""
        # Two sweeps of the same second get different random parts, and `new` would refuse a third.
        name = f"{name}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        folder = Path(self.base.output_dir).absolute() / "sweeps" / name
        make_folder(folder, new=True)
        OmegaConf.save(self.base, folder / "multirun.yaml")
        with open_dict(self.base):
            self.base.hydra.sweep.dir = str(folder)
        return folder

    def launch(self, jobs: Sequence[Job], first: int, title: str) -> Any:
        """Hand the jobs that are to be run to Hydra's launcher and show how far they are.

        Args:
            jobs: Every job's overrides and the folder of its record. Where `rerun` keeps the
                record that there is, the job is not launched.
            first: Number of the first job within the sweep.
            title: What the jobs are.
        """
        from hydra.core.plugins import Plugins

        results = [folder.verified_result() for _, folder in jobs]
        todo = [
            job
            for job, result in zip(jobs, results, strict=True)
            if result is None or needs_rerun(result, self.base.rerun)
        ]
        if not todo:
            return []
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=self.context, task_function=self.task_function, config=self.base
        )
        returns: list[Any] = []
        folder = Path(self.base.hydra.sweep.dir)
        with sweep_display(make_console(), title, [f for _, f in todo]), sweeping(folder):
            watch = StopSignalPoller(folder)
            while todo:
                looked = time.monotonic()
                # What another process is at is left to it, and taken up should that process die.
                free = [(texts, folder) for texts, folder in todo if not folder.is_locked()]
                if free:
                    returns += self._launch(launcher, free, first)
                    looked = time.monotonic()
                ours = {folder for _, folder in free} - self.elsewhere
                todo = [
                    (texts, folder)
                    for texts, folder in todo
                    if folder.verified_result() is None
                    and (folder not in ours or folder.is_locked())
                ]
                watch.check()
                if todo:  # looking at thousands takes a while, and shall not take all the time
                    time.sleep(max(_POLL_SECONDS, time.monotonic() - looked))
        return returns

    def decided_here(self) -> list[str]:
        """What remote jobs are told: the records are awaited for machines like this one."""
        if not is_remote(self.base.hydra):
            return []
        found = {"device": found_device, "cpu_capability": found_cpu_capability}
        return [
            f"{key}={as_override(of_machine('auto'))}"
            for key, of_machine in found.items()
            if self.base[key] == "auto"
        ]

    def _launch(self, launcher: Any, jobs: Sequence[Job], first: int) -> Any:
        # Jobs are composed anew, wherever they run: there they find the sweep's folder again.
        common = [f"hydra.sweep.dir={as_override(str(self.base.hydra.sweep.dir))}"]
        common += self.decided_here()
        try:
            overrides = [[*texts, *common] for texts, _ in jobs]
            returns = launcher.launch(overrides, initial_job_idx=first)
        except Exception as error:
            # A worker that was killed, or ran out of memory, takes the launcher down with it.
            if not type(error).__module__.startswith(("joblib", "concurrent")):
                raise
            raise RunsFailed(
                f"a worker died ({type(error).__name__}), its runs are lost and the others "
                "kept; the same command goes on"
            ) from error
        self.launched += len(jobs)
        self.elsewhere = set()
        for (_, folder), each in zip(jobs, returns, strict=True):
            self._handle_return(folder, each)
        return returns

    def _handle_return(self, folder: RunFolder, done: JobReturn) -> None:
        """Keep what a job says about a run that has left no record."""
        error = done._return_value if done.status == JobStatus.FAILED else None
        if isinstance(error, RunLockedByAnotherProcess):
            self.elsewhere.add(folder)
            return
        if isinstance(error, (CannotWrite, JobRaised)):
            self.job_errors.append(error)
        if folder.verified_result() is not None:
            return
        self.reasons[folder] = str(error) if error is not None else _RECORD_NOT_FOUND
        if isinstance(error, JobRaised) and not folder.is_locked():
            folder.append_log(error.trace)

    def reproducing_arguments(self, arguments: Sequence[str]) -> list[str]:
        """The arguments that describe this sweep, launcher included."""
        hydra = OmegaConf.to_container(self.base.hydra.overrides.hydra)
        assert isinstance(hydra, list)
        extra = [text for text in hydra if not text.startswith(("hydra.mode=", "hydra.sweep."))]
        kept = [text for text in arguments if override_key(text) not in OWN_ARGUMENTS]
        return [*config_folders(self.base.hydra), *kept, *extra]

    def first_error(self) -> str:
        """What the first job raised, for a message about runs that left no record."""
        if not self.job_errors:
            return ""
        first = self.job_errors[0]
        verb = "was lost:" if isinstance(first, WorkerLost) else "raised"
        return f" (the first {verb} {first})"
