"""One process at a run at a time, and its log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mixbench.core.errors import CannotWrite, RunLockedByAnotherProcess
from mixbench.records.folder import RunFolder


@contextmanager
def locked(folder: RunFolder, wait: bool) -> Iterator[None]:
    """Hold the folder against other processes; the lock goes when its holder dies."""
    lock = FileLock(folder.lock)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise RunLockedByAnotherProcess(folder.path.name) from None
        print(f"run is locked by another process; waiting: {folder.path}", flush=True)
        lock.acquire()
    except OSError as error:
        raise CannotWrite(folder.lock, error.strerror or str(error)) from error
    try:
        yield
    finally:
        lock.release()


class _LogFile(logging.FileHandler):
    """A log that is not worth a traceback of its own when the disk is full."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Write what mixbench logs to the run's log as well."""
    handler = _LogFile(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("mixbench")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
