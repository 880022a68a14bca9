"""Files in one piece: atomic writing, bounded reading, strict JSON, folders that can be written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mixbench.core.errors import CannotWrite, SettingError

MOST_BYTES = 64 * 2**20
"""No record's text file is larger; what comes from elsewhere may be."""


_LARGEST = 1e100


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


def named_files(arguments: Mapping[str, Any]) -> list[Path]:
    """The files that a constructor's arguments name: texts with a suffix or a folder, and there."""
    texts = [
        text
        for value in arguments.values()
        for text in (value if isinstance(value, (list, tuple)) else [value])
        if isinstance(text, str) and (Path(text).suffix or "/" in text)
    ]
    found = []
    for text in texts:
        with suppress(OSError, ValueError):  # too long for a path, or no text for one
            if Path(text).is_file():
                found.append(Path(text))
    return found
