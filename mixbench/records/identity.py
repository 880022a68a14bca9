"""A run's identity: a hash over its settings and the code that computes it, and its name.

Never imports torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

from mixbench.config.settings import GROUPS, Settings
from mixbench.config.targets import target
from mixbench.core.files import named_files
from mixbench.records.folder import RunFolder
from mixbench.records.sources import source_files

_PACKAGE = Path(__file__).parents[1]


# Beside what a run's classes import: what trains them, and makes their initial values.
_TRAINING = ("train/*.py", "models/init.py", "core/seeds.py", "runs/build.py")


def folder_of(settings: Settings) -> RunFolder:
    """Where this run's record lies, or will lie."""
    identity = identity_of(settings)
    task, mixer = settings.names["dataset"], settings.names["mixer"]
    name = f"{task}-{mixer}-seed{settings.seed}-{identity}"
    return RunFolder(Path(settings.output_dir).absolute() / "runs" / name, identity)


def identity_of(settings: Settings) -> str:
    """12 hex digits over the settings, the code and the data; equal if the results must be."""
    parts = [settings.result_settings(), code_version(settings), files_read(settings)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def code_version(settings: Settings, groups: Iterable[str] = GROUPS) -> str:
    """A hash of the sources that compute a result.

    Those are all that the modules of the run's classes import, see `sources.source_files`, and the
    training loop, whatever is trained.

    Args:
        settings: The run's.
        groups: Whose classes count.
    """
    paths = {path for pattern in _TRAINING for path in _PACKAGE.glob(pattern)}
    for group in groups:
        node = getattr(settings, group)
        # What a class names as text is imported later: an objective of the user's own.
        for named in (node["_target_"], getattr(target(group, node), "objective", "")):
            module = named.rpartition(".")[0]
            paths |= source_files(module) if module else set()
    digest = hashlib.sha256()
    for each in sorted(map(_source_digest, paths)):  # wherever they lie
        digest.update(each)
    return digest.hexdigest()[:12]


def files_read(settings: Settings) -> dict[str, str]:
    """The files that the run's classes read, see `Dataset.files_read`, each with its hash.

    By their names alone: the same data may lie elsewhere on another machine. Two of one name have
    two hashes, with a comma between.
    """
    found: dict[str, set[str]] = {}
    for group in GROUPS:
        node = getattr(settings, group)
        arguments = {key: value for key, value in node.items() if key != "_target_"}
        of_class = getattr(target(group, node), "files_read", named_files)
        for path in of_class(arguments):
            status = path.stat()
            digest = _file_digest(path, status.st_mtime_ns, status.st_size).hex()[:12]
            found.setdefault(path.name, set()).add(digest)
    return {name: ",".join(sorted(digests)) for name, digests in sorted(found.items())}


def shared_code_version(settings: Settings) -> str:
    """`code_version` without the mixer's part: what the arms of a comparison have in common."""
    return code_version(settings, [group for group in GROUPS if group != "mixer"])


def _source_digest(path: Path) -> bytes:
    if path.is_relative_to(_PACKAGE):
        return _own_digest(path)
    status = path.stat()
    return _file_digest(path, status.st_mtime_ns, status.st_size)


@cache
def _own_digest(path: Path) -> bytes:
    """Our sources do not change while a process runs: it has imported them."""
    name = path.relative_to(_PACKAGE).as_posix()
    return hashlib.sha256(f"{name}\0".encode() + path.read_bytes()).digest()


@lru_cache(maxsize=4096)
def _file_digest(path: Path, changed: int, size: int) -> bytes:
    """Over a file's name and content, read again only when it has changed."""
    return hashlib.sha256(f"{path.name}\0".encode() + path.read_bytes()).digest()
