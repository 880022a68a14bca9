"""Jobs on Ray, on a cluster that is there or on this machine."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from mixbench.core.errors import JobStopped, RunsFailed, SettingError, WorkerLost
from mixbench.launch.base import (
    POLL_SECONDS,
    SweepLauncher,
    compose_jobs,
    failed_return,
    plain,
    run_in_job,
)

# The least that Ray takes; runs hand on nothing through it.
_STORE_BYTES = 80 * 10**6


# ------------------------------------------------------------------------------------------- on Ray


def _on_ray(
    common: tuple[HydraContext, TaskFunction, dict[Any, Any]], cfg: DictConfig
) -> JobReturn:
    """One job, in a process of Ray's."""
    context, task_function, state = common
    return run_in_job(context, cfg, task_function, state)


class Ray(SweepLauncher):
    """Tasks of a Ray cluster, which is started here where none is named.

    Args:
        ray: `init` has arguments of `ray.init`, above all the cluster's `address`; `remote` has
            those of `ray.remote`: what a job needs. What is None is left to Ray.
    """

    remote = True

    def __init__(self, *, ray: dict[str, Any]) -> None:
        self.options = plain(ray)

    def check(self) -> None:
        for key in ("init", "remote"):
            if not isinstance(self.options.get(key), dict):
                got = self.options.get(key, "nothing")
                raise SettingError(
                    f"hydra.launcher.ray.{key}", expected="a table of settings", got=got
                )

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> list[JobReturn]:
        """Run all jobs; returns when each has ended, or will not start any more.

        Raises:
            SettingError: Ray refuses an option, or the cluster is not there.
            RunsFailed: The cluster is gone.
        """
        import ray
        from ray.exceptions import RaySystemError

        with _ray_options_as_setting_errors("hydra.launcher.ray.remote", "options of ray.remote"):
            task = ray.remote(**_given(self.options["remote"]))(_on_ray)
        self._connect()
        try:
            common = ray.put((self.context, self.task_function, Singleton.get_state()))
            running = {}
            for number, overrides in enumerate(job_overrides, initial_job_idx):
                cfg = compose_jobs(self.context, self.config, overrides, number)
                running[task.remote(common, cfg)] = number
            return self._gather(running)
        except RaySystemError as error:
            raise RunsFailed(f"Ray's cluster is gone: {_first_line(error)}") from error

    def _gather(self, running: dict[Any, int]) -> list[JobReturn]:
        import ray
        from ray.exceptions import TaskCancelledError

        returns: dict[int, JobReturn] = {}
        references, cancelled = list(running), False
        while references:
            if self.stopping() and not cancelled:
                cancelled = True
                for reference in references:
                    ray.cancel(reference)  # one that runs hears of it as of Ctrl-C, and saves
            ended, references = ray.wait(references, timeout=POLL_SECONDS)
            for reference in ended:
                try:
                    done = ray.get(reference)
                except TaskCancelledError:
                    done = failed_return(JobStopped("before it started", signal.SIGTERM))
                except Exception as error:
                    reason = f"{type(error).__name__}: {_first_line(error)}"
                    done = failed_return(WorkerLost(f"Ray: {reason}", str(error)))
                returns[running[reference]] = done
        return [returns[number] for number in sorted(returns)]

    def _connect(self) -> None:
        import ray

        if ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing about a user leaves
        options = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.options["init"].get("address") is None and "RAY_ADDRESS" not in os.environ:
            options |= {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
        before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
        try:
            with _ray_options_as_setting_errors(
                "hydra.launcher.ray.init", "what ray.init starts or joins a cluster with"
            ):
                ray.init(**options | _given(self.options["init"]))
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)


@contextmanager
def _ray_options_as_setting_errors(key: str, expected: str) -> Iterator[None]:
    """What Ray says about its options, as an error of the setting that they come from."""
    try:
        yield
    except (ConnectionError, RuntimeError, TypeError, ValueError) as error:
        raise SettingError(key, expected=expected, got=_first_line(error)) from error


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
