"""A run's identity: a hash over its settings and the code that computes it, and its name.

Never imports torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from mixbench.config.settings import GROUPS, Settings
from mixbench.records.folder import RunFolder
from mixbench.records.sources import source_files

_PACKAGE = Path(__file__).parents[1]


# Modules and folders that plan, show or find results; all others can influence them.
_PRESENTATION = {
    "_ext",
    "bench",
    "checks",
    "cli",
    "compare",
    "config",
    "core",
    "display",
    "launch",
    "loggers",
    "records",
    "report",
    "stats",
    "sweeps",
    "version.py",
}


def folder_of(settings: Settings) -> RunFolder:
    """Where this run's record lies, or will lie."""
    identity = identity_of(settings)
    task, mixer = short_name(settings.dataset), short_name(settings.mixer)
    name = f"{task}-{mixer}-seed{settings.seed}-{identity}"
    return RunFolder(Path(settings.output_dir).absolute() / "runs" / name, identity)


def short_name(node: Mapping[str, Any]) -> str:
    """What people call a dataset or mixer: the module that its `_target_` is in."""
    return str(node["_target_"]).split(".")[-2]


def identity_of(settings: Settings) -> str:
    """12 hex digits over the settings and the code; equal if the results must be equal."""
    text = json.dumps([settings.result_settings(), code_version(settings)], sort_keys=True)
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
