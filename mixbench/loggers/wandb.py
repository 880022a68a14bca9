"""Weights & Biases, offline or online."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from mixbench.core.errors import positive
from mixbench.loggers.base import LoggedRun, Logger, Unfinished, final_numbers, final_words, numbers
from mixbench.records.result import COMPLETED, Result


class Wandb(Logger):
    """One W&B run a run: configuration, history by step, the result as summary.

    The group is the comparison's name or the grid's folder, the job type the stage. An interrupted
    run goes on under its id: online after the last step there, offline in a folder written anew.

    Args:
        project: The project.
        entity: A team; None for the account's default.
        mode: `offline` writes files that `wandb sync` uploads; `online` sends at once.
        folder: Where the folder `wandb` is made.
        timeout: Seconds that beginning and finishing may each take.
    """

    package = "wandb"
    extra = "wandb"

    def __init__(
        self,
        *,
        project: str,
        entity: str | None,
        mode: Literal["offline", "online"],
        folder: str,
        timeout: float,
    ) -> None:
        self.project = project
        self.entity = entity
        self.mode: Literal["offline", "online"] = mode
        self.folder = folder
        positive("timeout", timeout)
        self.timeout = timeout

    def started(self, run: LoggedRun) -> int:
        # Without this it reports on itself over the network, offline too.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        online = self.mode == "online"
        if online and not wandb.login(prompt=False, verify=False):
            raise RuntimeError("not logged in; `wandb login` does it once")
        self._unfinished = Unfinished(run, "wandb")
        number = self._unfinished.read() or secrets.token_hex(6)
        self._unfinished.write(number)
        for left in Path(self.folder).glob(f"wandb/offline-run-*-{number}"):
            shutil.rmtree(left)
        stage = run.place.get("stage")
        self._run = wandb.init(
            project=self.project,
            entity=self.entity,
            id=number,
            name=run.name,
            group=run.group,
            job_type=stage,
            config={**run.labels(), **run.config()},
            dir=self.folder,
            mode=self.mode,
            resume="allow" if online else None,
            reinit="finish_previous",
            settings=wandb.Settings(
                init_timeout=self.timeout,
                finish_timeout=self.timeout,
                finish_timeout_raises=True,
                silent=True,
                console="off",  # the progress line is ours
                save_code=False,
                disable_git=True,
                x_disable_stats=True,
                x_disable_meta=True,
                x_save_requirements=False,
            ),
        )
        # It counts from the next step that it would take; offline it knows of no earlier one.
        return max(0, self._run.step - 1)

    def epoch(self, row: Mapping[str, float]) -> None:
        told = {"epoch": row["epoch"], **numbers(row)}
        self._run.log(told, step=int(row["step"]), commit=True)

    def finished(self, result: Result) -> None:
        self._run.summary.update({**final_numbers(result), **final_words(result)})
        self._run.finish(exit_code=0 if result.status == COMPLETED else 1)
        self._unfinished.remove()

    def interrupted(self) -> None:
        self._run.finish(exit_code=1)
