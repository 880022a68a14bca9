"""Jobs on SLURM, in arrays."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn

from mixbench.core.errors import RunsFailed, SettingError, at_least
from mixbench.launch.base import plain
from mixbench.launch.submitted import SubmititLauncher, SubmittedJob, stop_signal_of

# How often SLURM's controller is asked about jobs. One that is twice not in its queue has ended;
# what it wrote last may take that long to be seen here.
_ASK_SECONDS, _ASK_STOPPING_SECONDS = 15.0, 2.0


_COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol")


# Why jobs wait in a queue that will start them in time.
_USUAL = ("None", "Priority", "Resources", "JobArrayTaskLimit", "BeginTime", "Cleaning")


# SLURM's MaxArraySize is 1001 unless its administrator says otherwise.
_ARRAY = 1000


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

    remote = True

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
            "setup": plain(setup),
            "additional_parameters": plain(additional_parameters),
        }
        self._asked = time.monotonic()
        self._queue: dict[str, str] = {}
        self._printed: set[str] = set()

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

    def _free_slots(self, running: Sequence[SubmittedJob]) -> int:
        return _ARRAY  # the cluster's queue holds what has to wait

    def _poll(self, running: Sequence[SubmittedJob], stopping: bool) -> None:
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
            self._print_once(f"SLURM does not answer: {asked.stderr.strip()}")
            return
        lines = [line.split(maxsplit=2) for line in asked.stdout.splitlines()]
        self._queue = {line[0]: " ".join(line[1:]) for line in lines}
        for job in running:
            state, _, reason = self._queue.get(job.submitted.job_id, "").partition(" ")
            job.absent_polls = 0 if state else job.absent_polls + 1
            if state == "PENDING" and reason not in _USUAL:
                self._print_once(f"jobs wait in SLURM's queue: {reason}")

    def _print_once(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            print(text, flush=True)

    def _cancel_pending(self, running: Sequence[SubmittedJob]) -> Sequence[SubmittedJob]:
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

    def _collect_result(self, job: SubmittedJob, stopping: bool) -> JobReturn | None:
        done = self._read(job)
        if done is not None and stop_signal_of(done, signal.SIGTERM) and not stopping:
            # SLURM may have taken its node away and put it back into the queue.
            state = self._queue.get(job.submitted.job_id, "")
            if state.startswith(("PENDING", "REQUEUE")):
                job.answer.unlink()
            return done if job.absent_polls > 0 else None
        if done is None and job.absent_polls > 1:
            return self._lost(job, f"SLURM's job {job.submitted.job_id} ended{_ending(job)}")
        return done


def _ending(job: SubmittedJob) -> str:
    """How SLURM says that a job ended, as long as it remembers."""
    shown = subprocess.run(
        ["scontrol", "show", "job", "--oneliner", job.submitted.job_id],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"JobState=(\S+) Reason=(\S+)", shown.stdout)
    return f" ({', '.join(text for text in found.groups() if text != 'None')})" if found else ""
