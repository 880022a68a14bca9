"""One run's folder: result, history, checkpoint, log and lock, and whether they can be trusted.

Never imports torch.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout

from mixbench.core.files import bounded_text, make_folder, strict_json, write_bytes, write_json
from mixbench.records.result import FAILED, Result, as_result

# The key of a result's own digest, over all the others: whatever was overwritten shows.
_DIGEST = "sha256"


# A sweep of thousands of runs looks at all results several times: each is read again only when its
# file has changed.
_read_before: dict[Path, tuple[tuple[int, ...], Result | None]] = {}


@dataclass(frozen=True)
class RunFolder:
    """One run's folder, existing or not."""

    path: Path
    identity: str

    @staticmethod
    def at(path: Path) -> RunFolder:
        """The run whose folder this is, by its name's end."""
        return RunFolder(path, path.name.rpartition("-")[2])

    @property
    def history(self) -> Path:
        return self.path / "history.csv"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.pt"

    @property
    def log(self) -> Path:
        return self.path / "run.log"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    def read_result(self) -> Result | None:
        """The result, or None where the run has none, or one that cannot be read as a result."""
        try:
            status = self.result.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        known = _read_before.get(self.result)
        if known is None or known[0] != stamp:
            known = _read_before[self.result] = (stamp, _read_result(self.result))
        return known[1]

    def write_result(self, result: Result) -> None:
        """Write the result in one piece, with a digest of its content.

        Raises:
            CannotWrite: The disk is full, or read-only.
        """
        content = msgspec.to_builtins(result)
        write_json(self.result, {**content, _DIGEST: _digest(content)})

    def verified_result(self) -> Result | None:
        """The result, or None where there is none that can be trusted, see `verify`."""
        return self.verify()[0]

    def verify(self) -> tuple[Result | None, list[tuple[Path, str]]]:
        """The result if it can be trusted, else the files that cannot, and why.

        They may be cut short, overwritten, or of another run.
        """
        if not self.result.exists():
            return None, []
        result = self.read_result()
        if result is None:
            return None, [(self.result, "it cannot be read as a result")]
        if result.identity not in (None, self.identity):
            return None, [(self.result, f"it is that of the run {result.identity}")]
        if result.history_sha256 in (None, self.history_digest()):
            return result, []
        why = "it is not the one that the result was written with"
        return None, [(self.result, "its history.csv has changed"), (self.history, why)]

    def history_digest(self) -> str | None:
        """SHA-256 of the history as it is; None if there is none."""
        try:
            return hashlib.sha256(self.history.read_bytes()).hexdigest()
        except OSError:
            return None

    def quarantine(self, path: Path) -> Path | None:
        """Rename a file of this folder, so that it is kept and never read again; its new place."""
        if not path.exists():
            return None
        number = 1
        while (aside := path.with_name(f"{path.name}.broken-{number}")).exists():
            number += 1
        os.replace(path, aside)
        return aside

    def is_locked(self) -> bool:
        """Whether a living process is at this run; the system frees the lock of a dead one."""
        if not self.lock.exists():
            return False
        lock = FileLock(self.lock)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        return False

    def append_log(self, text: str) -> None:
        """Add to the log of a run whose own process cannot any more."""
        self.create()
        with suppress(OSError), self.log.open("a") as file:
            file.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} ERROR {text.rstrip()}\n")

    def remove_leftovers(self) -> None:
        """Remove what killed processes had begun to write; for the holder of the lock."""
        for whole in (self.result, self.history, self.checkpoint):
            for path in self.path.glob(f".{whole.name}.*"):
                path.unlink(missing_ok=True)

    def create(self) -> None:
        """Make the folder.

        Raises:
            SettingError: It cannot be made or written to.
        """
        make_folder(self.path)


def _read_result(path: Path) -> Result | None:
    try:
        content = strict_json(bounded_text(path))
        written = content.pop(_DIGEST, None) if isinstance(content, dict) else None
        if written not in (None, _digest(content)):
            return None
        return as_result(content)
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def needs_rerun(result: Result | None, rerun: str) -> bool:
    """Whether a setting of `rerun` asks to run again what has this result."""
    return rerun == "all" or (rerun == "failed" and result is not None and result.status == FAILED)


def relative_record(folder: RunFolder) -> str:
    """A record's place as a sweep's folder writes it, so that an output folder can be moved."""
    return f"../../runs/{folder.path.name}"


def listed_record(sweep_folder: Path, record: str) -> Path:
    """Where the record lies that a sweep's folder lists for one of its runs.

    By its name only: a `sweep.json` from elsewhere must not lead outside its own output folder.
    """
    return sweep_folder.parent.parent / "runs" / Path(record).name


def write_history(path: Path, rows: list[dict[str, float]]) -> None:
    """One line an epoch; columns from the first row."""
    lines = [",".join(rows[0])] + [",".join(map(repr, row.values())) for row in rows]
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def read_history(path: Path) -> list[dict[str, float]]:
    """The lines of a history.

    Raises:
        ValueError: It is damaged.
        OSError: It cannot be read.
    """
    rows = csv.DictReader(bounded_text(path).splitlines(), strict=True)
    try:
        return [
            {key: int(text) if text.isdigit() else float(text) for key, text in row.items()}
            for row in rows
        ]
    except (AttributeError, csv.Error) as error:  # a line with more or fewer fields, or quotes
        raise ValueError(f"{path} is damaged") from error
