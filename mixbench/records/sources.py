"""Which source files a class is made of, found without importing anything."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path

from mixbench.core.plugins import located

# Of a package with more files than this (an installed framework, say) only what is imported counts:
# reading all of it for every run would take longer than some runs.
_MOST_FILES = 1000


# What a record names by version instead.
_NAMED_ELSEWHERE = {*sys.stdlib_module_names, "torch"}


# Ours counts module by module: a new mixer beside a run's own must not move that run.
_OURS = __name__.partition(".")[0]


_INSTALLED = {"site-packages", "dist-packages"}


def source_files(module: str) -> frozenset[Path]:
    """The files of a module, of its package, and of what these import, directly or not.

    Of a user's package that is every file, since its modules use each other; of packages that are
    installed only the module's own counts, for others are dependencies; of mixbench what is
    imported. An import by a name that is put together when the code runs is not seen.
    """
    return _source_files(module, tuple(sys.path))


@lru_cache(maxsize=256)
def _source_files(module: str, places: tuple[str, ...]) -> frozenset[Path]:
    own = module.partition(".")[0]
    found: dict[Path, str] = {}  # and the name under which it is imported
    packages: set[str] = set()
    waiting = [module]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name in seen or top in _NAMED_ELSEWHERE or top in packages:
            continue
        seen.add(name)
        spec = located(top)
        if spec is None or (top not in (own, _OURS) and _installed(spec)):
            continue
        new = {} if top == _OURS else dict(_package(top, spec))
        if new:
            packages.add(top)
        else:
            spec = located(name)
            if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
                continue
            new = {Path(spec.origin): name}
        for path, known_as in new.items():
            if path not in found:
                found[path] = known_as
                status = path.stat()
                waiting += _imports(path, known_as, status.st_mtime_ns, status.st_size)
    return frozenset(found)


def _installed(spec: ModuleSpec) -> bool:
    places = [spec.origin, *(spec.submodule_search_locations or [])]
    return any(_INSTALLED & set(Path(place).parts) for place in places if place is not None)


def _package(top: str, spec: ModuleSpec) -> Iterator[tuple[Path, str]]:
    """All files of a package with their modules' names; none of a very large one, or a module."""
    folders = spec.submodule_search_locations or []
    files = [(folder, path) for folder in folders for path in Path(folder).rglob("*.py")]
    if len(files) > _MOST_FILES:
        return
    for folder, path in files:
        parts = (top, *path.relative_to(folder).with_suffix("").parts)
        yield path, ".".join(parts)


@lru_cache(maxsize=4096)
def _imports(path: Path, module: str, changed: int, size: int) -> list[str]:
    """Names of modules, or of things in them, that a file imports anywhere in it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # its import will say so
        return []
    package = module.split(".")
    if path.name == "__init__.py" and package[-1] != "__init__":
        package.append("__init__")
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: -node.level] if node.level else []
            whole = ".".join([*base, *filter(None, [node.module])])
            found += [whole, *(f"{whole}.{alias.name}" for alias in node.names)]
    return [name for name in found if name]
