"""Launchers that run a sweep's jobs through submitit (on this machine, or on SLURM) and on Ray.

Hydra's own plugins for the two wait for the jobs one after the other and give up at the first one
whose process is lost, start all local jobs at once, leave them behind when they are interrupted,
and cannot join a Ray cluster that is there. These return one answer for each job, whatever became
of it, and stop in order with their sweep (`mixbench.core.interruption`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf, open_dict

from mixbench.config.targets import check_arguments
from mixbench.core.errors import RunsFailed, SettingError
from mixbench.core.interruption import Interrupted, StopSignalPoller

POLL_SECONDS = 0.25


_OURS = "hydra_plugins.mixbench_launchers."


# The start of a launcher's `_target_`, the package that it needs, and the extra that brings it.
_NEEDS = (
    ("hydra_plugins.hydra_joblib_launcher.", "hydra_plugins.hydra_joblib_launcher", "parallel"),
    (f"{_OURS}Submitit", "submitit", "slurm"),
    (f"{_OURS}Ray", "ray", "ray"),
)


def prefer_our_launcher_presets(config_folder: str) -> None:
    """Let the presets in `conf/hydra/launcher` stand for themselves.

    Hydra would otherwise merge them with what other packages register under the same names.
    """
    Plugins.instance()  # all packages have registered theirs
    registered = ConfigStore.instance().repo["hydra"]["launcher"]
    for path in Path(config_folder, "hydra", "launcher").glob("*.yaml"):
        registered.pop(path.name, None)


def check_launcher(hydra_cfg: DictConfig) -> None:
    """See that the launcher can be used here, before anything is run or written.

    Raises:
        SettingError: Its package is missing, or one of its settings is wrong.
    """
    node = OmegaConf.to_container(hydra_cfg.launcher, resolve=True)
    assert isinstance(node, dict)
    target = str(node["_target_"])
    for start, package, extra in _NEEDS:
        if target.startswith(start) and importlib.util.find_spec(package) is None:
            raise SettingError(
                "hydra/launcher",
                expected="one whose package is installed",
                got=hydra_cfg.runtime.choices["hydra/launcher"],
                fix=f"pip install 'mixbench[{extra}]'",
            )
    if target.startswith(_OURS):
        arguments = check_arguments("hydra.launcher", node)
        del arguments["_target_"]
        get_object(target)(**arguments).check()


def is_remote(hydra_cfg: DictConfig) -> bool:
    """Whether the launcher's jobs run on machines that may have a GPU where this one has none."""
    target = str(hydra_cfg.launcher._target_)
    return target.startswith(_OURS) and bool(get_object(target).remote)


class SweepLauncher(Launcher):
    """What ours share: one `JobReturn` for each job, and an end in order."""

    remote = False

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.context = hydra_context
        self.task_function = task_function
        self.config = config
        self.sweep = Path(config.hydra.sweep.dir)
        self._watch = StopSignalPoller(self.sweep)

    def check(self) -> None:
        """See that the settings make sense, and that what they name is there.

        Raises:
            SettingError: They do not.
        """

    def stopping(self) -> bool:
        """Whether the sweep's jobs have been told to stop."""
        try:
            self._watch.check()
        except (Interrupted, RunsFailed):
            return True
        return False


def compose_jobs(
    context: HydraContext, config: DictConfig, overrides: Sequence[str], number: int
) -> DictConfig:
    """A job's configuration, with the `hydra` node."""
    cfg = context.config_loader.load_sweep_config(config, list(overrides))
    with open_dict(cfg.hydra.job):
        cfg.hydra.job.id = f"{cfg.hydra.job.name}_{number}"
        cfg.hydra.job.num = number
    return cfg


def run_in_job(
    context: HydraContext, cfg: DictConfig, task_function: TaskFunction, state: dict[Any, Any]
) -> JobReturn:
    """Run a job in a process that knows nothing of Hydra yet."""
    setup_globals()
    Singleton.set_state(state)
    HydraConfig.instance().set_config(cfg)
    done = run_job(
        hydra_context=context,
        task_function=task_function,
        config=cfg,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
    done.cfg = done.hydra_cfg = None  # large, and known to the sweeper
    return done


def failed_return(error: RunsFailed) -> JobReturn:
    return JobReturn(status=JobStatus.FAILED, _return_value=error)


def plain(value: Any) -> Any:
    """A list or dictionary, which Hydra hands over as its own kinds."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
