"""Launchers that run a sweep's jobs through submitit (on this machine, or on SLURM) and on Ray.

Hydra's own plugins for the two wait for the jobs one after the other and give up at the first one
whose process is lost, start all local jobs at once, leave them behind when they are interrupted,
and cannot join a Ray cluster that is there. These return one answer for each job, whatever became
of it, and stop in order with their sweep (`mixbench.interruption`).
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import pickle
import re
import shutil
import signal
import subprocess
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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

from mixbench.config import check_arguments
from mixbench.errors import RunsFailed, SettingError, Stopped, WorkerLost, at_least
from mixbench.interruption import Interrupted, Watch

_LOOK_SECONDS = 0.25
# How often SLURM's controller is asked about jobs. One that is twice not in its queue has ended;
# what it wrote last may take that long to be seen here.
_ASK_SECONDS, _ASK_STOPPING_SECONDS = 15.0, 2.0
_COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
# Why jobs wait in a queue that will start them in time.
_USUAL = ("None", "Priority", "Resources", "JobArrayTaskLimit", "BeginTime", "Cleaning")
# Lines of a lost job's output that go into its run's log.
_TAIL = 50
# SLURM's MaxArraySize is 1001 unless its administrator says otherwise.
_ARRAY = 1000
# The least that Ray takes; runs hand on nothing through it.
_STORE_BYTES = 80 * 10**6
_OURS = "hydra_plugins.mixbench_launchers."
# The start of a launcher's `_target_`, the package that it needs, and the extra that brings it.
_NEEDS = (
    ("hydra_plugins.hydra_joblib_launcher.", "hydra_plugins.hydra_joblib_launcher", "parallel"),
    (f"{_OURS}Submitit", "submitit", "slurm"),
    (f"{_OURS}Ray", "ray", "ray"),
)


def presets_alone(config_folder: str) -> None:
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


def runs_elsewhere(hydra_cfg: DictConfig) -> bool:
    """Whether the launcher's jobs run on machines that may have a GPU where this one has none."""
    target = str(hydra_cfg.launcher._target_)
    return target.startswith(_OURS) and bool(get_object(target).elsewhere)


class SweepLauncher(Launcher):
    """What ours share: one `JobReturn` for each job, and an end in order."""

    elsewhere = False

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.context = hydra_context
        self.task_function = task_function
        self.config = config
        self.sweep = Path(config.hydra.sweep.dir)
        self._watch = Watch(self.sweep)

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


def _compose(
    context: HydraContext, config: DictConfig, overrides: Sequence[str], number: int
) -> DictConfig:
    """A job's configuration, with the `hydra` node."""
    cfg = context.config_loader.load_sweep_config(config, list(overrides))
    with open_dict(cfg.hydra.job):
        cfg.hydra.job.id = f"{cfg.hydra.job.name}_{number}"
        cfg.hydra.job.num = number
    return cfg


def _run(
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


def _failed(error: RunsFailed) -> JobReturn:
    return JobReturn(status=JobStatus.FAILED, _return_value=error)


def _plain(value: Any) -> Any:
    """A list or dictionary, which Hydra hands over as its own kinds."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


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
    done = _run(context, _compose(context, config, overrides, number), task_function, state)
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
            jobs.append(_Job(number, list(overrides), self._folder / f"{number}.answer"))
        waiting, running = deque(jobs), list[_Job]()
        while waiting or running:
            stopping = self.stopping()
            self._look(running, stopping)
            if stopping:
                for job in [*waiting, *self._withdrawn(running)]:
                    job.done = _failed(Stopped("before it started", signal.SIGTERM))
                waiting.clear()
            ready = [waiting.popleft() for _ in range(min(self._room(running), len(waiting)))]
            if ready:
                self._submit(executor, ready)
            submitted, running = [*running, *ready], []
            for job in submitted:
                if job.done is None:
                    job.done = self._answer(job, stopping)
                if job.timed_out() and job.tries <= self.max_num_timeout and not stopping:
                    job.done = None
                    waiting.append(job)
                elif job.done is None:
                    running.append(job)
            time.sleep(_LOOK_SECONDS if running else 0.0)
        for job in jobs:
            job.clean()
        return [job.done for job in jobs if job.done is not None]

    def _submit(self, executor: Any, jobs: Sequence[_Job]) -> None:
        state, environment = Singleton.get_state(), self._environment()
        hydra = (self.context, self.config, self.task_function)
        arguments = [
            (*hydra, job.overrides, job.number, state, environment, job.answer) for job in jobs
        ]
        for job in jobs:
            job.answer.unlink(missing_ok=True)
            job.tries += 1
            job.missed = 0
        with _signals_later(), _outside_its_job():
            submitted = executor.map_array(_submitted, *zip(*arguments, strict=True))
        for job, each in zip(jobs, submitted, strict=True):
            job.submitted = each

    def _read(self, job: _Job) -> JobReturn | None:
        """A job's answer, if there is one."""
        if not job.answer.exists():
            return None
        done = pickle.loads(job.answer.read_bytes())
        assert isinstance(done, JobReturn)
        return done

    def _lost(self, job: _Job, what: str) -> JobReturn:
        """For a job that has ended without an answer."""
        paths = job.submitted.paths
        lines = (job.submitted.stderr() or "").splitlines()
        last = f", {lines[-1].strip()!r}" if lines else ""
        reason = f"{what} and gave no answer; its output{last}: {paths.stderr}"
        return _failed(WorkerLost(reason, "\n".join([reason, *lines[-_TAIL:]])))

    def _environment(self) -> dict[str, str]:
        """What a job is to find in its environment although submitit changes it."""
        return {}

    @abstractmethod
    def _executor(self) -> Any:
        """submitit's executor, set up."""

    def _look(self, running: Sequence[_Job], stopping: bool) -> None:
        """Find out what has become of the jobs."""

    @abstractmethod
    def _room(self, running: Sequence[_Job]) -> int:
        """How many more jobs can be submitted."""

    @abstractmethod
    def _withdrawn(self, running: Sequence[_Job]) -> Sequence[_Job]:
        """Take back the jobs that have not started; they are told."""

    @abstractmethod
    def _answer(self, job: _Job, stopping: bool) -> JobReturn | None:
        """What has become of a job; None while it may still answer."""


@dataclass
class _Job:
    number: int
    overrides: list[str]
    answer: Path
    tries: int = 0
    missed: int = 0  # how often in a row SLURM did not have it in its queue
    submitted: Any = None
    done: JobReturn | None = None

    def timed_out(self) -> bool:
        return self.done is not None and _stopped_by(self.done, signal.SIGUSR2)

    def clean(self) -> None:
        """Remove what is of no use to a person; its output stays."""
        paths = [self.answer]
        if self.submitted is not None:
            paths += [self.submitted.paths.submitted_pickle, self.submitted.paths.result_pickle]
        for path in paths:
            path.unlink(missing_ok=True)


def _stopped_by(done: JobReturn, signum: int) -> bool:
    stop = done._return_value
    return isinstance(stop, Stopped) and stop.signum == signum


@contextmanager
def _signals_later() -> Iterator[None]:
    """Keep Ctrl-C from the processes that are started here; this one hears of it afterwards.

    A terminal sends it to all, and submitit's would end their jobs before they have saved.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _outside_its_job() -> Iterator[None]:
    """Hide the job that this process itself may be: jobs would inherit what that one asked for."""
    own = ("SLURM_", "SRUN_", "SUBMITIT_") if "SLURM_JOB_ID" in os.environ else ()
    hidden = {name for name in os.environ if name.startswith(own) and name != "SLURM_CONF"}
    before = {name: os.environ.pop(name) for name in hidden}
    try:
        yield
    finally:
        os.environ.update(before)


class SubmititLocal(SubmititLauncher):
    """Jobs on this machine, as many at once as it has CPUs for; arguments as `SubmititLauncher`."""

    def _executor(self) -> Any:
        import submitit

        executor = submitit.LocalExecutor(self._folder)
        executor.update_parameters(timeout_min=self.timeout_min)
        return executor

    def _environment(self) -> dict[str, str]:
        # submitit hides all GPUs from a job that does not ask for some.
        name = "CUDA_VISIBLE_DEVICES"
        return {name: os.environ[name]} if name in os.environ else {}

    def _room(self, running: Sequence[_Job]) -> int:
        known = hasattr(os, "sched_getaffinity")  # as on Linux, where it is what we may use
        cpus = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
        return max(1, cpus // self.cpus_per_task) - len(running)

    def _withdrawn(self, running: Sequence[_Job]) -> Sequence[_Job]:
        return []

    def _answer(self, job: _Job, stopping: bool) -> JobReturn | None:
        if not job.submitted.done():
            return None
        return self._read(job) or self._lost(job, f"process {job.submitted.job_id} ended")


class SubmititSlurm(SubmititLauncher):
    """Jobs of a SLURM cluster; what is None is left to its defaults.

    Args:
        timeout_min: As `SubmititLauncher`.
        max_num_timeout: As `SubmititLauncher`.
        cpus_per_task: As `SubmititLauncher`.
        signal_delay_s: Seconds before the end of its time in which a run saves.
        mem_gb: Memory of a job.
        gpus_per_node: GPUs of a job.
        partition: Where to queue.
        account: What to charge.
        qos: Quality of service.
        constraint: Features that a node needs.
        array_parallelism: How many jobs may run at once.
        name: What the queue calls the jobs.
        setup: Shell commands before each job, e.g. [module load cuda].
        additional_parameters: Other options of sbatch, e.g. {exclude: node7}.
    """

    elsewhere = True

    def __init__(
        self,
        *,
        timeout_min: int,
        max_num_timeout: int,
        cpus_per_task: int,
        signal_delay_s: int,
        mem_gb: float | None,
        gpus_per_node: int | None,
        partition: str | None,
        account: str | None,
        qos: str | None,
        constraint: str | None,
        array_parallelism: int,
        name: str,
        setup: list[str] | None,
        additional_parameters: dict[str, Any],
    ) -> None:
        super().__init__(
            timeout_min=timeout_min, max_num_timeout=max_num_timeout, cpus_per_task=cpus_per_task
        )
        self.array_parallelism = array_parallelism
        self.parameters = {
            "job_name": name,
            "time": timeout_min,
            "signal_delay_s": signal_delay_s,
            "cpus_per_task": cpus_per_task,
            # srun does not take this over from sbatch since SLURM 22.05.
            "srun_args": [f"--cpus-per-task={cpus_per_task}"],
            "mem": None if mem_gb is None else f"{math.ceil(mem_gb * 1024)}M",
            "gpus_per_node": gpus_per_node,
            "partition": partition,
            "account": account,
            "qos": qos,
            "constraint": constraint,
            "array_parallelism": array_parallelism,
            "setup": _plain(setup),
            "additional_parameters": _plain(additional_parameters),
        }
        self._asked = time.monotonic()
        self._queue: dict[str, str] = {}
        self._told: set[str] = set()

    def check(self) -> None:
        super().check()
        at_least("hydra.launcher.array_parallelism", self.array_parallelism, 1)
        missing = [name for name in _COMMANDS if shutil.which(name) is None]
        if missing:
            raise SettingError(
                "hydra/launcher",
                expected="SLURM's commands on this machine",
                got=f"none of the name {missing[0]}",
                fix="start it where you would call sbatch",
            )

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> list[JobReturn]:
        """As `SubmititLauncher.launch`.

        Raises:
            RunsFailed: SLURM does not take the jobs.
        """
        from submitit.core.utils import FailedJobError

        try:
            return super().launch(job_overrides, initial_job_idx)
        except FailedJobError as error:
            raise RunsFailed(f"SLURM does not take the jobs: {error}") from error

    def _executor(self) -> Any:
        import submitit

        executor = submitit.SlurmExecutor(self._folder, max_num_timeout=0)
        given = {key: value for key, value in self.parameters.items() if value is not None}
        executor.update_parameters(**given)
        return executor

    def _room(self, running: Sequence[_Job]) -> int:
        return _ARRAY  # the cluster's queue holds what has to wait

    def _look(self, running: Sequence[_Job], stopping: bool) -> None:
        now = time.monotonic()
        if now - self._asked < (_ASK_STOPPING_SECONDS if stopping else _ASK_SECONDS) or not running:
            return
        self._asked = now
        columns = "--format=%i %T %r"  # job, state, reason
        user = f"--user={os.getuid()}"
        asked = subprocess.run(
            ["squeue", "--noheader", "--array", user, columns],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode != 0:
            self._tell(f"SLURM does not answer: {asked.stderr.strip()}")
            return
        lines = [line.split(maxsplit=2) for line in asked.stdout.splitlines()]
        self._queue = {line[0]: " ".join(line[1:]) for line in lines}
        for job in running:
            state, _, reason = self._queue.get(job.submitted.job_id, "").partition(" ")
            job.missed = 0 if state else job.missed + 1
            if state == "PENDING" and reason not in _USUAL:
                self._tell(f"jobs wait in SLURM's queue: {reason}")

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            print(text, flush=True)

    def _withdrawn(self, running: Sequence[_Job]) -> Sequence[_Job]:
        pending = [
            job
            for job in running
            if self._queue.get(job.submitted.job_id, "").startswith("PENDING")
        ]
        if pending:
            ids = [job.submitted.job_id for job in pending]
            # One that has started meanwhile is not withdrawn, and stops by itself.
            subprocess.run(["scancel", "--quiet", "--state=PENDING", *ids], check=False)
        return pending

    def _answer(self, job: _Job, stopping: bool) -> JobReturn | None:
        done = self._read(job)
        if done is not None and _stopped_by(done, signal.SIGTERM) and not stopping:
            # SLURM may have taken its node away and put it back into the queue.
            state = self._queue.get(job.submitted.job_id, "")
            if state.startswith(("PENDING", "REQUEUE")):
                job.answer.unlink()
            return done if job.missed > 0 else None
        if done is None and job.missed > 1:
            return self._lost(job, f"SLURM's job {job.submitted.job_id} ended{_ending(job)}")
        return done


def _ending(job: _Job) -> str:
    """How SLURM says that a job ended, as long as it remembers."""
    shown = subprocess.run(
        ["scontrol", "show", "job", "--oneliner", job.submitted.job_id],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"JobState=(\S+) Reason=(\S+)", shown.stdout)
    return f" ({', '.join(text for text in found.groups() if text != 'None')})" if found else ""


# ------------------------------------------------------------------------------------------- on Ray


def _on_ray(
    common: tuple[HydraContext, TaskFunction, dict[Any, Any]], cfg: DictConfig
) -> JobReturn:
    """One job, in a process of Ray's."""
    context, task_function, state = common
    return _run(context, cfg, task_function, state)


class Ray(SweepLauncher):
    """Tasks of a Ray cluster, which is started here where none is named.

    Args:
        ray: `init` has arguments of `ray.init`, above all the cluster's `address`; `remote` has
            those of `ray.remote`: what a job needs. What is None is left to Ray.
    """

    elsewhere = True

    def __init__(self, *, ray: dict[str, Any]) -> None:
        self.options = _plain(ray)

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

        with _told("hydra.launcher.ray.remote", "options of ray.remote"):
            task = ray.remote(**_given(self.options["remote"]))(_on_ray)
        self._connect()
        try:
            common = ray.put((self.context, self.task_function, Singleton.get_state()))
            running = {}
            for number, overrides in enumerate(job_overrides, initial_job_idx):
                cfg = _compose(self.context, self.config, overrides, number)
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
            ended, references = ray.wait(references, timeout=_LOOK_SECONDS)
            for reference in ended:
                try:
                    done = ray.get(reference)
                except TaskCancelledError:
                    done = _failed(Stopped("before it started", signal.SIGTERM))
                except Exception as error:
                    reason = f"{type(error).__name__}: {_first_line(error)}"
                    done = _failed(WorkerLost(f"Ray: {reason}", str(error)))
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
            with _told("hydra.launcher.ray.init", "what ray.init starts or joins a cluster with"):
                ray.init(**options | _given(self.options["init"]))
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)


@contextmanager
def _told(key: str, expected: str) -> Iterator[None]:
    """What Ray says about its options, as an error of the setting that they come from."""
    try:
        yield
    except (ConnectionError, RuntimeError, TypeError, ValueError) as error:
        raise SettingError(key, expected=expected, got=_first_line(error)) from error


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
