"""A process for each job, on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn

from mixbench.launch.submitted import SubmititLauncher, SubmittedJob


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

    def _free_slots(self, running: Sequence[SubmittedJob]) -> int:
        known = hasattr(os, "sched_getaffinity")  # as on Linux, where it is what we may use
        cpus = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
        return max(1, cpus // self.cpus_per_task) - len(running)

    def _cancel_pending(self, running: Sequence[SubmittedJob]) -> Sequence[SubmittedJob]:
        return []

    def _collect_result(self, job: SubmittedJob, stopping: bool) -> JobReturn | None:
        if not job.submitted.done():
            return None
        return self._read(job) or self._lost(job, f"process {job.submitted.job_id} ended")
