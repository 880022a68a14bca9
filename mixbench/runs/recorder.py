"""A run's history and checkpoint."""

from __future__ import annotations

import io
import logging
import time
import zipfile

import torch

from mixbench.core.errors import RunsFailed
from mixbench.core.files import write_bytes
from mixbench.core.interruption import Interrupted, StopSignalPoller
from mixbench.records.folder import RunFolder, write_history
from mixbench.train.events import Callback, Epoch, Step, Training
from mixbench.train.trainer import Trainer

DIAGNOSTICS = "diagnostics"
"""What the columns of a history begin with that hold what mixers tell about themselves."""

log = logging.getLogger(__name__)


class CorruptCheckpoint(Exception):
    """A checkpoint that cannot be gone on from."""


class Recorder(Callback):
    """Keeps a run's history and checkpoint, and ends the run in order when it is told to.

    The checkpoint holds the history as well, so that one file is all that a run goes on from. There
    is one every `interval` seconds, and at the end of an epoch unless the last one took more than a
    fiftieth of the time since.
    """

    def __init__(self, folder: RunFolder, interval: float, watch: StopSignalPoller) -> None:
        self.folder = folder
        self.interval = interval
        self.watch = watch
        self.history: list[dict[str, float]] = []
        self._saved = time.perf_counter()
        self._cost = 0.0

    def resume(self, trainer: Trainer) -> None:
        """Put the trainer where the last checkpoint was taken, if there is one.

        Raises:
            CorruptCheckpoint: It is damaged; the trainer may be, too.
        """
        path = self.folder.checkpoint
        if not path.exists():
            return
        try:
            with zipfile.ZipFile(path) as archive:  # PyTorch does not look at the checksums
                damaged = archive.testzip()
            if damaged is not None:
                raise CorruptCheckpoint(f"{damaged} in it is damaged")
            state = torch.load(path, map_location=trainer.device, weights_only=True)
            trainer.load_state(state)
            self.history = [dict(row) for row in state["history"]]
            if len(self.history) != trainer.epoch:
                raise CorruptCheckpoint(
                    f"it has {len(self.history)} lines for {trainer.epoch} epochs"
                )
        except CorruptCheckpoint:
            raise
        except Exception as error:  # whatever other bytes make of it
            raise CorruptCheckpoint(
                f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            ) from error
        if self.history:
            write_history(self.folder.history, self.history)
        log.info("going on after epoch %d (step %d)", trainer.epoch, trainer.step)

    def on_step(self, step: Step, trainer: Training) -> None:
        try:
            self.watch.check()
        except (Interrupted, RunsFailed) as stop:
            self._save(trainer)
            log.info("interrupted at step %d: run the same command to resume", step.step)
            raise stop
        if time.perf_counter() - self._saved >= self.interval:
            self._save(trainer)

    def on_epoch(self, epoch: Epoch, trainer: Training) -> None:
        self.history.append(
            {
                "epoch": epoch.epoch,
                "step": epoch.step,
                **epoch.metrics,
                **{f"{DIAGNOSTICS}/{name}": value for name, value in epoch.diagnostics.items()},
                "lr": epoch.lr,
                "seconds": round(epoch.seconds, 3),
            }
        )
        write_history(self.folder.history, self.history)
        log.info("epoch %d: %s", epoch.epoch, {**epoch.metrics, **epoch.diagnostics})
        last = epoch.epoch == trainer.epochs
        if last or time.perf_counter() - self._saved >= 50 * self._cost:
            self._save(trainer)

    def _save(self, trainer: Training) -> None:
        started = time.perf_counter()
        buffer = io.BytesIO()
        torch.save({**trainer.state(), "history": self.history}, buffer)
        write_bytes(self.folder.checkpoint, buffer.getvalue())
        self._saved = time.perf_counter()
        self._cost = self._saved - started
