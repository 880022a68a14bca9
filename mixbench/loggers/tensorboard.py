"""TensorBoard event files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mixbench.loggers.base import LoggedRun, Logger, final_numbers, final_words, numbers
from mixbench.records.result import Result


class Tensorboard(Logger):
    """Scalars an epoch, the configuration and the result as texts, and both as hyperparameters.

    A run has one folder, and its log is written anew whenever it begins or goes on.

    Args:
        folder: Where the runs' folders are.
    """

    package = "tensorboard"
    extra = "tensorboard"

    def __init__(self, *, folder: str) -> None:
        self.folder = folder

    def started(self, run: LoggedRun) -> int:
        from torch.utils.tensorboard import SummaryWriter

        place = Path(self.folder) / run.name
        for path in place.glob("events.out.tfevents.*"):
            path.unlink()
        self._config = {**run.labels(), **run.config()}
        # A TensorBoard that is watching forgets what it has read of this folder.
        self._writer = SummaryWriter(str(place), purge_step=0)
        self._writer.add_text("configuration", _block(self._config))
        self._writer.flush()
        return 0

    def epoch(self, row: Mapping[str, float]) -> None:
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, int(row["step"]))
        self._writer.flush()

    def finished(self, result: Result) -> None:
        self._writer.add_text("result", _block(final_words(result)))
        known = {
            key: value if isinstance(value, (bool, int, float)) else str(value)
            for key, value in {**self._config, "status": result.status}.items()
        }
        self._writer.add_hparams(known, final_numbers(result), run_name=".")
        self._writer.close()

    def interrupted(self) -> None:
        self._writer.close()


def _block(content: Mapping[str, Any]) -> str:
    """As a code block of Markdown, which TensorBoard shows."""
    lines = json.dumps(content, indent=2).splitlines()
    return "\n".join(f"    {line}" for line in lines)
