"""Tells loggers what a run does, and keeps the run safe from them."""

from __future__ import annotations

import logging
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixbench.loggers.base import LoggedRun, Logger
from mixbench.records.folder import RunFolder, read_history
from mixbench.records.sweep import Comparison, read_sweep

if TYPE_CHECKING:
    from mixbench.config.settings import Settings
    from mixbench.train.events import Epoch, Step, Training


log = logging.getLogger(__name__)


_PLACE = {"task": "task", "arm": "arm", "role": "stage", "trial": "trial", "ablation": "ablation"}


class LoggerDispatch:
    """A callback that tells loggers what stands in the run's record.

    The first exception that a logger raises is logged with its traceback, shown as one line, and
    switches that logger off; the run goes on. Asking to stop (`KeyboardInterrupt`) passes.

    Args:
        loggers: By name.
        run: The run.

    Attributes:
        seconds: What the loggers took while it trained, which is no part of what a run costs.
    """

    def __init__(self, loggers: Mapping[str, Logger], run: LoggedRun) -> None:
        self._on = dict(loggers)
        self._run = run
        self._last_step: dict[str, int] = {}
        self.seconds = 0.0

    def started(self) -> None:
        for name, logger in list(self._on.items()):
            with self._switching_off_on_error(name):
                self._last_step[name] = logger.started(self._run)

    def on_step(self, step: Step, trainer: Training) -> None:
        pass

    def on_epoch(self, epoch: Epoch, trainer: Training) -> None:
        started = time.perf_counter()
        self._flush_history()
        self.seconds += time.perf_counter() - started

    def ended(self) -> None:
        """The run is over: with a result on disk it has finished, else it was interrupted."""
        result = self._run.folder.read_result()
        if result is not None:
            self._flush_history()
        for name, logger in list(self._on.items()):
            with self._switching_off_on_error(name):
                if result is None:
                    logger.interrupted()
                else:
                    logger.finished(result)

    def _flush_history(self) -> None:
        """Every line that is not told yet; those from before an interruption are among them."""
        history = self._run.folder.history
        for name, logger in list(self._on.items()):
            with self._switching_off_on_error(name):
                for row in read_history(history) if history.exists() else []:
                    if row["step"] > self._last_step[name]:
                        logger.epoch(row)
                        self._last_step[name] = int(row["step"])

    @contextmanager
    def _switching_off_on_error(self, name: str) -> Iterator[None]:
        try:
            with _preserving_rng_and_signals():
                yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit among them: a library's, not the user's
            del self._on[name]
            log.warning("the logger %s is off:\n%s", name, traceback.format_exc())
            reason = str(error).strip().partition("\n")[0]
            print(
                f"the logger {name} is off for this run: {type(error).__name__}: {reason[:200]}"
                f" (more in {self._run.folder.log})",
                flush=True,
            )


@contextmanager
def attach_loggers(
    loggers: Mapping[str, Logger], settings: Settings, folder: RunFolder, sweep: Path | None
) -> Iterator[LoggerDispatch]:
    """Tell loggers of a run from its start to its end, whatever its end is.

    Args:
        loggers: By name.
        settings: The run's, from `config.check`.
        folder: Its record.
        sweep: The folder of the sweep that it belongs to, if to any.
    """
    place = _place(sweep, folder.identity) if loggers else {}
    dispatch = LoggerDispatch(loggers, LoggedRun(settings, folder, place))
    dispatch.started()
    try:
        yield dispatch
    finally:
        dispatch.ended()


def _place(sweep: Path | None, identity: str) -> dict[str, Any]:
    """What a sweep's folder says about a run; a grid's is listed at its end only."""
    if sweep is None:
        return {}
    place: dict[str, Any] = {"sweep": sweep.name}
    try:
        content = read_sweep(sweep)
    except ValueError:  # of another version
        return place
    if isinstance(content, Comparison):
        found = next((run for run in content.runs if run.identity == identity), None)
        if found is not None:
            told = {name: getattr(found, key) for key, name in _PLACE.items()}
            place |= {name: value for name, value in told.items() if value is not None}
            place["study"] = content.name
    return place


@contextmanager
def _preserving_rng_and_signals() -> Iterator[None]:
    """Leave what a run depends on as it was: the random numbers to come, and Ctrl-C."""
    import torch

    handlers: dict[signal.Signals, Callable[..., Any] | int | None] = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        for signum, handler in handlers.items():
            if handler is not None and signal.getsignal(signum) != handler:
                signal.signal(signum, handler)
