"""Being told to stop: Ctrl-C, SIGTERM, or a parent process that is gone.

Asked once, a run finishes its step, writes its checkpoint and ends; asked twice, the process ends
at once. All that is written is written in one piece, so that nothing is corrupt either way.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

from mixbench.errors import RunsFailed

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A process was told to stop, and stops in good order.

    Attributes:
        signum: The signal.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class _Request:
    """What this process was asked by signals, and whom it hands that on to."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self.depth = 0
        self.sweeps: list[Path] = []

    def receive(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            os._exit(128 + signum)
        self.signum = signum
        for folder in self.sweeps:
            stop_sweep(folder, str(int(signum)))
        if self.depth == 0:
            raise Interrupted(signum)


_request = _Request()


@contextmanager
def signals_kept() -> Iterator[None]:
    """Turn signals into `Interrupted`, raised at once but within `stopped_in_order` blocks.

    Does nothing where that is so already, and outside the main thread, where Python delivers no
    signals.
    """
    known = signal.getsignal(signal.SIGINT) == _request.receive
    if known or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.signal(signum, _request.receive) for signum in _SIGNALS}
    try:
        yield
    finally:
        _request.signum = None
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextmanager
def stopped_in_order() -> Iterator[None]:
    """Within this block a first signal is only noted; `check` raises it where it suits."""
    _request.depth += 1
    try:
        yield
    finally:
        _request.depth -= 1


# Where a sweep's jobs find out that it is over: a file in its folder, and the process that runs it.
_STOP, _SWEEPER = ".stop", "MIXBENCH_SWEEPER"
_LOOK_SECONDS = 1.0


def stop_sweep(folder: Path, why: str) -> None:
    """Have all jobs of a sweep stop in order, in whatever process: `why` is a signal or "error"."""
    try:
        (folder / _STOP).write_text(why)
    except OSError:  # no room for it: those that cannot read it finish their runs
        return


@contextmanager
def sweeping(folder: Path) -> Iterator[None]:
    """While a sweep's jobs run: signals are handed on to them and wait until they have stopped."""
    os.environ[_SWEEPER] = f"{socket.gethostname()} {os.getpid()}"
    _request.sweeps.append(folder)
    try:
        with stopped_in_order():
            yield
    finally:
        _request.sweeps.remove(folder)
        del os.environ[_SWEEPER]


def sweeper_of_worker() -> int | None:
    """The process that this one works for, on the same machine; None in the sweeper itself."""
    host, _, pid = os.environ.get(_SWEEPER, "").partition(" ")
    elsewhere = not pid or host != socket.gethostname() or int(pid) == os.getpid()
    return None if elsewhere else int(pid)


class Watch:
    """Sees whether a run is to stop: asked by a signal, by its sweep, or left without its sweeper.

    Args:
        sweep: The folder of the sweep that the run belongs to.
    """

    def __init__(self, sweep: Path | None) -> None:
        self._stop = None if sweep is None else sweep / _STOP
        self._sweeper = sweeper_of_worker()
        if self._sweeper is not None:
            _leave_with(self._sweeper)

    def check(self) -> None:
        """Raise what has been asked.

        Raises:
            Interrupted: To be let through, once the state is on disk.
            RunsFailed: Another run failed, and `on_error=stop`.
        """
        if _request.signum is not None:
            raise Interrupted(_request.signum)
        if self._stop is not None and self._stop.exists():
            why = self._stop.read_text()
            if why.isdigit():
                raise Interrupted(int(why))
            raise RunsFailed("stopped: another run failed, and on_error=stop")
        if self._sweeper is not None and not _lives(self._sweeper):
            raise Interrupted(signal.SIGTERM)


@cache
def _leave_with(sweeper: int) -> None:
    """End this process, a worker, some time after its sweeper has; a run in it stops first.

    Pools of workers wait for their next task for ever when the process that had them was killed.
    """

    def follow() -> None:
        while _lives(sweeper) or _request.depth > 0:
            time.sleep(_LOOK_SECONDS)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
