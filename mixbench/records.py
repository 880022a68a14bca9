"""Run records on disk: where they lie, how they are written and found. Never imports torch.

A run's folder is `OUTPUT_DIR/runs/<dataset>-<mixer>-seed<n>-<identity>` and holds

    .hydra/        the composed configuration, as Hydra writes it
    run.log        what happened, tracebacks included
    history.csv    one line an epoch
    checkpoint.pt  the state some seconds ago, or at the end of the last epoch, and the history
    result.json    written last, in one piece; without it there is no result

The identity is a hash of all settings that influence the result and of the code that computes it,
so the same command finds its record again, and a changed setting never does.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mixbench.config import GROUPS, Settings
from mixbench.errors import CannotWrite, SettingError
from mixbench.sources import source_files

COMPLETED, DIVERGED, FAILED = "completed", "diverged", "failed"

_PACKAGE = Path(__file__).parent
# Modules and folders that plan, show or find results; all others can influence them.
_PRESENTATION = {
    "bench",
    "calibration.py",
    "checks",
    "cli.py",
    "collect.py",
    "comparison.py",
    "comparison_sweeper.py",
    "completion.py",
    "data.py",
    "errors.py",
    "hydra_errors.py",
    "lattice_meeting.py",
    "new.py",
    "overrides.py",
    "launchers.py",
    "listing.py",
    "plugins.py",
    "loggers",
    "progress.py",
    "records.py",
    "report",
    "scale.py",
    "search.py",
    "sources.py",
    "stats.py",
    "study.py",
    "summary.py",
    "torture.py",
    "version.py",
    "sweeper.py",
    "_ext",
}


MOST_BYTES = 64 * 2**20
"""No record's text file is larger; what comes from elsewhere may be."""

_LARGEST = 1e100

_RESULT_KEYS = {
    "status", "reason", "seed", "started", "config", "code_version", "device", "threads",
    "machine", "versions", "metric", "higher_is_better", "margin", "parameters", "metrics",
    "seconds",
}  # fmt: skip
_COMPLETED_KEYS = {"chance", "n_cells", "state_size", "state_held", "operations", "signature"}
_CHECK_KEYS = {"name", "layer", "predicted", "observed", "holds"}
_NUMBER = (int, float)
# Of what is read as more than text; a record may come from a stranger.
_TYPES: dict[str, Any] = {
    "status": str, "reason": (str, type(None)), "seed": int, "started": str, "code_version": str,
    "machine": dict, "versions": dict, "metric": str, "higher_is_better": bool, "margin": _NUMBER,
    "n_cells": (int, type(None)), "state_size": (int, type(None)), "state_held": (int, type(None)),
    "operations": dict, "signature": (dict, type(None)), "metrics": dict,
}  # fmt: skip


# A sweep of thousands of runs looks at all results several times: each is read again only when its
# file has changed.
_read_before: dict[Path, tuple[tuple[int, ...], Mapping[str, Any] | None]] = {}


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

    def read_result(self) -> Mapping[str, Any] | None:
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

    def sound_result(self) -> Mapping[str, Any] | None:
        """The result, or None where there is none that can be trusted, see `examined`."""
        return self.examined()[0]

    def examined(self) -> tuple[Mapping[str, Any] | None, list[tuple[Path, str]]]:
        """The result if it can be trusted, else the files that cannot, and why.

        They may be cut short, overwritten, or of another run.
        """
        if not self.result.exists():
            return None, []
        result = self.read_result()
        if result is None:
            return None, [(self.result, "it cannot be read as a result")]
        if result.get("identity", self.identity) != self.identity:
            return None, [(self.result, f"it is that of the run {result['identity']}")]
        expected = result.get("history_sha256")
        if expected is None or expected == self.history_digest():
            return result, []
        why = "it is not the one that the result was written with"
        return None, [(self.result, "its history.csv has changed"), (self.history, why)]

    def history_digest(self) -> str | None:
        """SHA-256 of the history as it is; None if there is none."""
        try:
            return hashlib.sha256(self.history.read_bytes()).hexdigest()
        except OSError:
            return None

    def set_aside(self, path: Path) -> Path | None:
        """Rename a file of this folder, so that it is kept and never read again; its new place."""
        if not path.exists():
            return None
        number = 1
        while (aside := path.with_name(f"{path.name}.broken-{number}")).exists():
            number += 1
        os.replace(path, aside)
        return aside

    def claimed(self) -> bool:
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

    def note(self, text: str) -> None:
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


def _read_result(path: Path) -> Mapping[str, Any] | None:
    try:
        result = strict_json(bounded_text(path))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return result if _is_result(result) else None


def bounded_text(path: Path) -> str:
    """A record's file as text.

    Raises:
        ValueError: It is larger than any that we write, or not text.
        OSError: It cannot be read.
    """
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{path} has {size:,} bytes; no file of a record has {MOST_BYTES:,}")
    return path.read_text()


def strict_json(text: str) -> Any:
    """What a JSON text holds, without numbers that nothing can be computed with.

    We write none that is not finite, and no result is as large as `_LARGEST`.

    Raises:
        ValueError: It is not JSON, or has such a number.
        RecursionError: It is nested too deep.
    """
    return json.loads(text, parse_constant=_bounded, parse_float=_bounded, parse_int=_bounded_int)


def _bounded(text: str) -> float:
    value = float(text)
    if not abs(value) < _LARGEST:
        raise ValueError(f"expected numbers that can be computed with, got {text}")
    return value


def _bounded_int(text: str) -> int:
    _bounded(text)
    return int(text)


def _is_result(content: Any) -> bool:
    """Whether what was read has the parts that every result has, and completed ones besides."""
    if not isinstance(content, dict) or not content.keys() >= _RESULT_KEYS:
        return False
    config = content["config"]
    return (
        isinstance(config, dict)
        and all(
            isinstance(config.get(group), dict) and isinstance(config[group].get("_target_"), str)
            for group in ("dataset", "mixer")
        )
        and all(isinstance(content[key], kind) for key, kind in _TYPES.items() if key in content)
        and all(map(_is_numbers, map(content.get, ("metrics", "chance", "parameters", "seconds"))))
        and (
            content["status"] != COMPLETED
            or (
                content.keys() >= _COMPLETED_KEYS
                and f"valid/{content['metric']}" in content["metrics"]
                and (not reads_test(config) or f"test/{content['metric']}" in content["metrics"])
                and all(map(_is_numbers, map(content["operations"].get, ("per_token", "per_pair"))))
                and (content["signature"] is None or _is_signature(content["signature"]))
            )
        )
    )


def reads_test(config: Mapping[str, Any]) -> bool:
    """Whether such a run reads the test split, as all did before there was a choice."""
    return bool(config.get("test", True))


def _is_numbers(content: Any) -> bool:
    """Whether it holds nothing but numbers by name, or is not there."""
    return content is None or (
        isinstance(content, dict)
        and all(isinstance(value, (*_NUMBER, type(None))) for value in content.values())
    )


def _is_signature(content: Mapping[str, Any]) -> bool:
    checks, failing = content.get("checks"), content.get("failing")
    return (
        isinstance(content.get("of"), int)
        and isinstance(failing, list)
        and all(isinstance(name, str) for name in failing)
        and isinstance(checks, list)
        and all(isinstance(check, dict) and check.keys() >= _CHECK_KEYS for check in checks)
        and all(isinstance(check["name"], str) for check in checks)
    )


def redone(result: Mapping[str, Any] | None, rerun: str) -> bool:
    """Whether a setting of `rerun` asks to run again what has this result."""
    return rerun == "all" or (
        rerun == "failed" and result is not None and result["status"] == FAILED
    )


def make_folder(path: Path, *, new: bool = False, key: str = "output_dir") -> None:
    """Make a folder below what a setting `key` names; with `new` it must not exist yet.

    Raises:
        SettingError: It cannot be made or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=not new)
        if not os.access(path, os.W_OK):
            raise PermissionError(f"no permission to write in {path}")
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingError(
            key, expected="a folder that can be written", got=f"{path} ({reason})"
        ) from error


def folder_of(settings: Settings) -> RunFolder:
    """Where this run's record lies, or will lie."""
    identity = identity_of(settings)
    task, mixer = short_name(settings.dataset), short_name(settings.mixer)
    name = f"{task}-{mixer}-seed{settings.seed}-{identity}"
    return RunFolder(Path(settings.output_dir).absolute() / "runs" / name, identity)


def relative_record(folder: RunFolder) -> str:
    """A record's place as a sweep's folder writes it, so that an output folder can be moved."""
    return f"../../runs/{folder.path.name}"


def listed_record(sweep_folder: Path, run: Mapping[str, Any]) -> Path:
    """Where the record lies that a sweep's folder lists for one of its runs.

    By its name only: a `sweep.json` from elsewhere must not lead outside its own output folder.
    """
    return sweep_folder.parent.parent / "runs" / Path(str(run.get("record"))).name


def short_name(node: Mapping[str, Any]) -> str:
    """What people call a dataset or mixer: the module that its `_target_` is in."""
    return str(node["_target_"]).split(".")[-2]


def identity_of(settings: Settings) -> str:
    """12 hex digits over the settings and the code; equal if the results must be equal."""
    text = json.dumps([settings.identifying(), code_version(settings)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def code_version(settings: Settings) -> str:
    """A hash of the sources that can influence a result: mixbench's own and the user's targets'.

    Those are all that a target's module imports, see `sources.source_files`.
    """
    digest = hashlib.sha256(_own_digest())
    for path in sorted(_users_sources(settings)):
        status = path.stat()
        digest.update(_file_digest(path, status.st_mtime_ns, status.st_size))
    return digest.hexdigest()[:12]


def _users_sources(settings: Settings) -> set[Path]:
    """The files behind the classes that are neither ours nor PyTorch's."""
    found: set[Path] = set()
    for group in GROUPS:
        module = getattr(settings, group)["_target_"].rpartition(".")[0]
        if not module.startswith(("mixbench.", "torch.")):
            found |= source_files(module)
    return found


@cache
def _own_digest() -> bytes:
    """Over our sources, which do not change while a process runs: it has imported them."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        name = path.relative_to(_PACKAGE)
        if name.parts[0] not in _PRESENTATION:
            digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return digest.digest()


@lru_cache(maxsize=4096)
def _file_digest(path: Path, changed: int, size: int) -> bytes:
    """Over a file's name and content, read again only when it has changed."""
    return hashlib.sha256(f"{path.name}\0".encode() + path.read_bytes()).digest()


def config_folders(hydra_cfg: Mapping[str, Any]) -> list[str]:
    """The user's own configuration folders as arguments, from the `hydra` node."""
    sources = hydra_cfg["runtime"]["config_sources"]
    paths = [source["path"] for source in sources if source["provider"] == "command-line"]
    return [text for path in paths for text in ("--config-dir", path)]


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write in one piece: readers see the old file or the whole new one."""
    write_bytes(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write in one piece, on the disk when it returns.

    Raises:
        CannotWrite: The system does not let us; the old file is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise CannotWrite(path, error.strerror or str(error)) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


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
