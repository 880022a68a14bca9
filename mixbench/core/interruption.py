"""Being told to stop: Ctrl-C, SIGTERM, a time limit, or a sweep that is over or gone.

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
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType

from mixbench.core.errors import CannotWrite, RunsFailed

# Schedulers announce the end of a job's time by SIGUSR2, where they are asked to.
_NAMES = ("SIGINT", "SIGTERM", "SIGUSR2")


_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


# What a scheduler, or a terminal and a launcher, ask of a worker may reach it twice.
_REPEAT_SIGNAL_SECONDS = 2.0


class Interrupted(KeyboardInterrupt):
    """A process was told to stop, and stops in good order.

    Attributes:
        signum: The signal.
        why: What asked for it, where that was no signal.
    """

    def __init__(self, signum: int, why: str = "") -> None:
        super().__init__(signum, why)
        self.signum = signum
        name = signal.Signals(signum).name
        self.why = why or {"SIGUSR2": f"{name}, the end of its job's time"}.get(name, name)


class _Request:
    """What this process was asked by signals, and whom it hands that on to."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self.at = 0.0
        self.depth = 0
        self.worker = False
        self.sweeps: list[Path] = []

    def receive(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            person = signum == signal.SIGINT and not self.worker
            if not person and time.monotonic() - self.at < _REPEAT_SIGNAL_SECONDS:
                return
            os._exit(128 + signum)
        self.signum, self.at = signum, time.monotonic()
        for folder in self.sweeps:
            stop_sweep(folder, str(int(signum)))
        if self.depth == 0:
            raise Interrupted(signum)


_request = _Request()


@contextmanager
def handle_signals() -> Iterator[None]:
    """Turn signals into `Interrupted`, raised at once but within `defer_signals` blocks.

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
def defer_signals() -> Iterator[None]:
    """Within this block a first signal is only noted; `check` raises it where it suits."""
    _request.depth += 1
    try:
        yield
    finally:
        _request.depth -= 1


# Where a sweep's jobs find out that it is over: a file in its folder, there as long as they run.
# Its first line says which process runs the sweep, the next ones why to stop. The sweeper touches
# it, since its jobs may be on machines from which that process cannot be seen.
_SWEEPER = ".sweeper"


_POLL_SECONDS = 0.25


_HEARTBEAT_SECONDS = 5.0


_HEARTBEAT_TIMEOUT_SECONDS = 60.0


def stop_sweep(folder: Path, why: str) -> None:
    """Have all jobs of a sweep stop in order, in whatever process: `why` is a signal or "error"."""
    try:
        file = os.open(folder / _SWEEPER, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, f"{why}\n".encode())
        finally:
            os.close(file)
    except OSError:  # no room for it: those that cannot read it finish their runs
        return


@contextmanager
def sweeping(folder: Path) -> Iterator[None]:
    """While a sweep's jobs run: signals are handed on to them and wait until they have stopped.

    Raises:
        CannotWrite: The file that they look at cannot be written.
    """
    path = folder / _SWEEPER
    begun = path.with_name(f"{_SWEEPER}.{os.getpid()}")
    try:
        begun.write_text(f"{_host_id()} {os.getpid()}\n")
        os.replace(begun, path)
    except OSError as error:
        raise CannotWrite(path, error.strerror or str(error)) from error
    over = threading.Event()

    def beat() -> None:
        while not over.wait(_HEARTBEAT_SECONDS):
            with suppress(OSError):
                os.utime(path)

    threading.Thread(target=beat, daemon=True).start()
    _request.sweeps.append(folder)
    try:
        with defer_signals():
            yield
    finally:
        over.set()
        _request.sweeps.remove(folder)
        with suppress(OSError):
            path.unlink()


def is_sweeper() -> bool:
    """Whether this process runs a sweep, rather than a job of another process's sweep."""
    return bool(_request.sweeps)


class StopSignalPoller:
    """Sees whether a run is to stop: asked by a signal, by its sweep, or left without its sweeper.

    Where the sweeper's process can be seen, its end is noticed at once; on another machine, or in
    another container, after a minute in which it has not touched its file.

    Args:
        sweep: The folder of the sweep that the run belongs to.
    """

    def __init__(self, sweep: Path | None) -> None:
        self._file = None if sweep is None else sweep / _SWEEPER
        self._looked = -_POLL_SECONDS
        self._touched: int | None = None
        self._heard = time.monotonic()

    def check(self) -> None:
        """Raise what has been asked.

        Raises:
            Interrupted: To be let through, once the state is on disk.
            RunsFailed: Another run failed, and `on_error=stop`.
        """
        if _request.signum is not None:
            raise Interrupted(_request.signum)
        now = time.monotonic()
        if self._file is None or now - self._looked < _POLL_SECONDS:
            return
        self._looked = now
        try:
            (sweeper, *asked), touched = self._read()
        except OSError:  # a shared folder out of reach for a while
            return
        if asked and asked[0].isdigit():
            raise Interrupted(int(asked[0]))
        if asked:
            raise RunsFailed("stopped: another run failed, and on_error=stop")
        host, _, pid = sweeper.rpartition(" ")
        if host != _host_id():
            self._check_heartbeat(touched)
        elif int(pid) != os.getpid():
            self._check_pid(int(pid))

    def _read(self) -> tuple[list[str], os.stat_result]:
        assert self._file is not None
        try:
            with self._file.open() as file:  # opened, a shared file is never an old copy of it
                return file.read().splitlines(), os.fstat(file.fileno())
        except FileNotFoundError:
            why = f"its sweep is over, or its folder is not shared with this machine: {self._file}"
            raise Interrupted(signal.SIGTERM, why) from None

    def _check_pid(self, sweeper: int) -> None:
        _request.worker = True
        _exit_when_parent_dies(sweeper)
        if not _is_alive(sweeper):
            raise Interrupted(signal.SIGTERM, f"its sweep's process {sweeper} is gone")

    def _check_heartbeat(self, touched: os.stat_result) -> None:
        _request.worker = True
        now = time.monotonic()
        if touched.st_mtime_ns != self._touched:
            # A job may have waited in a queue for longer than its sweeper lived: then a beat has
            # to be heard before it starts. Clocks of two machines are compared for that only.
            first, old = (
                self._touched is None,
                time.time() - touched.st_mtime > _HEARTBEAT_TIMEOUT_SECONDS,
            )
            self._touched, self._heard = touched.st_mtime_ns, now
            if first and old:
                self._wait_for_heartbeat()
        elif now - self._heard > _HEARTBEAT_TIMEOUT_SECONDS:
            raise Interrupted(signal.SIGTERM, "nothing is heard of its sweep's process")

    def _wait_for_heartbeat(self) -> None:
        until = time.monotonic() + 3 * _HEARTBEAT_SECONDS
        while time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
            if self._read()[1].st_mtime_ns != self._touched:
                return
        raise Interrupted(signal.SIGTERM, "its sweep's process was gone before it started")


@cache
def _host_id() -> str:
    """Where process numbers mean what they mean here: this boot of this machine, this container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


@cache
def _exit_when_parent_dies(sweeper: int) -> None:
    """End this process, a worker, some time after its sweeper has; a run in it stops first.

    Pools of workers wait for their next task for ever when the process that had them was killed.
    """

    def follow() -> None:
        while _is_alive(sweeper) or _request.depth > 0:
            time.sleep(1.0)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's, but there
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # other systems have no such file
        return True
    return state != "Z"  # killed, and not yet seen to by its parent
