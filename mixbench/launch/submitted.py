"""Jobs through submitit: what this machine's and SLURM's launcher share."""

from __future__ import annotations

import os
import pickle
import signal
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from mixbench.core.errors import JobStopped, WorkerLost, at_least
from mixbench.launch.base import (
    POLL_SECONDS,
    SweepLauncher,
    compose_jobs,
    failed_return,
    run_in_job,
)

# Lines of a lost job's output that go into its run's log.
_TAIL = 50


# --------------------------------------------------------------------------------- through submitit


def _submitted(
    context: HydraContext,
    config: DictConfig,
    task_function: TaskFunction,
    overrides: Sequence[str],
    number: int,
    state: dict[Any, Any],
    environment: Mapping[str, str],
    answer: Path,
) -> None:
    """One job, in a process of its own that submitit has started; `answer` takes its `JobReturn`.

    Raises:
        RunsFailed: What the job raised: neither submitit nor SLURM shall call it completed.
    """
    os.environ.update(environment)
    Singleton.set_state(state)  # Hydra's, to compose
    done = run_in_job(
        context, compose_jobs(context, config, overrides, number), task_function, state
    )
    begun = answer.with_name(f"{answer.name}.{os.getpid()}")
    begun.write_bytes(pickle.dumps(done))
    os.replace(begun, answer)
    if done.status == JobStatus.FAILED:
        raise done._return_value


class SubmititLauncher(SweepLauncher):
    """A process for each job, through submitit; its output lies in the sweep's `.submitit`.

    Args:
        timeout_min: Minutes that a job may take. A run that takes longer saves before, and goes on
            in another job.
        max_num_timeout: How often it may do so.
        cpus_per_task: CPUs of one job.
    """

    def __init__(self, *, timeout_min: float, max_num_timeout: int, cpus_per_task: int) -> None:
        self.timeout_min = timeout_min
        self.max_num_timeout = max_num_timeout
        self.cpus_per_task = cpus_per_task

    def check(self) -> None:
        at_least("hydra.launcher.timeout_min", self.timeout_min, 1)
        at_least("hydra.launcher.max_num_timeout", self.max_num_timeout, 0)
        at_least("hydra.launcher.cpus_per_task", self.cpus_per_task, 1)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> list[JobReturn]:
        """Run all jobs; returns when each has ended, or will not start any more."""
        self._folder = self.sweep / ".submitit"
        self._folder.mkdir(exist_ok=True)
        executor = self._executor()
        jobs = []
        for number, overrides in enumerate(job_overrides, initial_job_idx):
            jobs.append(SubmittedJob(number, list(overrides), self._folder / f"{number}.answer"))
        waiting, running = deque(jobs), list[SubmittedJob]()
        while waiting or running:
            stopping = self.stopping()
            self._poll(running, stopping)
            if stopping:
                for job in [*waiting, *self._cancel_pending(running)]:
                    job.done = failed_return(JobStopped("before it started", signal.SIGTERM))
                waiting.clear()
            ready = [waiting.popleft() for _ in range(min(self._free_slots(running), len(waiting)))]
            if ready:
                self._submit(executor, ready)
            submitted, running = [*running, *ready], []
            for job in submitted:
                if job.done is None:
                    job.done = self._collect_result(job, stopping)
                if job.timed_out() and job.tries <= self.max_num_timeout and not stopping:
                    job.done = None
                    waiting.append(job)
                elif job.done is None:
                    running.append(job)
            time.sleep(POLL_SECONDS if running else 0.0)
        for job in jobs:
            job.clean()
        return [job.done for job in jobs if job.done is not None]

    def _submit(self, executor: Any, jobs: Sequence[SubmittedJob]) -> None:
        state, environment = Singleton.get_state(), self._environment()
        hydra = (self.context, self.config, self.task_function)
        arguments = [
            (*hydra, job.overrides, job.number, state, environment, job.answer) for job in jobs
        ]
        for job in jobs:
            job.answer.unlink(missing_ok=True)
            job.tries += 1
            job.absent_polls = 0
        with _block_sigint(), _without_slurm_env():
            submitted = executor.map_array(_submitted, *zip(*arguments, strict=True))
        for job, each in zip(jobs, submitted, strict=True):
            job.submitted = each

    def _read(self, job: SubmittedJob) -> JobReturn | None:
        """A job's answer, if there is one."""
        if not job.answer.exists():
            return None
        done = pickle.loads(job.answer.read_bytes())
        assert isinstance(done, JobReturn)
        return done

    def _lost(self, job: SubmittedJob, what: str) -> JobReturn:
        """For a job that has ended without an answer."""
        paths = job.submitted.paths
        lines = (job.submitted.stderr() or "").splitlines()
        last = f" {lines[-1].strip()!r}" if lines else ""
        why = "exited without returning a result; last stderr line"
        reason = f"{what}: {why}{last}: {paths.stderr}"
        return failed_return(WorkerLost(reason, "\n".join([reason, *lines[-_TAIL:]])))

    def _environment(self) -> dict[str, str]:
        """What a job is to find in its environment although submitit changes it."""
        return {}

    @abstractmethod
    def _executor(self) -> Any:
        """submitit's executor, set up."""

    def _poll(self, running: Sequence[SubmittedJob], stopping: bool) -> None:
        """Find out what has become of the jobs."""

    @abstractmethod
    def _free_slots(self, running: Sequence[SubmittedJob]) -> int:
        """How many more jobs can be submitted."""

    @abstractmethod
    def _cancel_pending(self, running: Sequence[SubmittedJob]) -> Sequence[SubmittedJob]:
        """Take back the jobs that have not started; they are told."""

    @abstractmethod
    def _collect_result(self, job: SubmittedJob, stopping: bool) -> JobReturn | None:
        """What has become of a job; None while it may still answer."""


@dataclass
class SubmittedJob:
    number: int
    overrides: list[str]
    answer: Path
    tries: int = 0
    absent_polls: int = 0  # how often in a row SLURM did not have it in its queue
    submitted: Any = None
    done: JobReturn | None = None

    def timed_out(self) -> bool:
        return self.done is not None and stop_signal_of(self.done, signal.SIGUSR2)

    def clean(self) -> None:
        """Remove what is of no use to a person; its output stays."""
        paths = [self.answer]
        if self.submitted is not None:
            paths += [self.submitted.paths.submitted_pickle, self.submitted.paths.result_pickle]
        for path in paths:
            path.unlink(missing_ok=True)


def stop_signal_of(done: JobReturn, signum: int) -> bool:
    stop = done._return_value
    return isinstance(stop, JobStopped) and stop.signum == signum


@contextmanager
def _block_sigint() -> Iterator[None]:
    """Keep Ctrl-C from the processes that are started here; this one hears of it afterwards.

    A terminal sends it to all, and submitit's would end their jobs before they have saved.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_slurm_env() -> Iterator[None]:
    """Hide the job that this process itself may be: jobs would inherit what that one asked for."""
    own = ("SLURM_", "SRUN_", "SUBMITIT_") if "SLURM_JOB_ID" in os.environ else ()
    hidden = {name for name in os.environ if name.startswith(own) and name != "SLURM_CONF"}
    before = {name: os.environ.pop(name) for name in hidden}
    try:
        yield
    finally:
        os.environ.update(before)
