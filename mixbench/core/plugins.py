"""Where configurations lie: ours, and what installed packages add, without importing those.

A package names the folder of its configurations in its metadata:

    [project.entry-points."mixbench.configs"]
    my_package = "my_package.conf"

Its files then stand beside ours (`mixer=theirs`), and classes of `my_package` may be a `_target_`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import entry_points
from pathlib import Path

_GROUP = "mixbench.configs"


def config_folder() -> str:
    """`conf/`: inside the installed package, or beside it in the repository."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "conf"
    return str(inside if inside.is_dir() else package.parent / "conf")


@cache
def plugins() -> dict[str, Path]:
    """The folders of configurations that installed packages register, by dotted name."""
    found = {}
    for entry in sorted(entry_points(group=_GROUP), key=lambda entry: entry.value):
        spec = located(entry.value)
        folders = list(spec.submodule_search_locations or []) if spec is not None else []
        if folders:
            found[entry.value] = Path(folders[0])
    return found


def plugin_packages() -> list[str]:
    """Top-level packages that register configurations; installing one is trusting it."""
    return [name.partition(".")[0] for name in plugins()]


def located(module: str, places: Sequence[str] = ()) -> ModuleSpec | None:
    """Where a module's source is, looking into `places` first; None if nowhere."""
    top, *inner = module.split(".")
    try:
        spec = PathFinder.find_spec(top, list(places)) or importlib.util.find_spec(top)
    except ValueError:  # what is running as a script says so of itself
        spec = PathFinder.find_spec(top)
    for part in inner:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
    return spec


def reach_working_folder() -> None:
    """Let modules in the working folder be imported, behind everything that is installed.

    `python script.py` does as much for a script's folder; a console script does not.
    """
    folder = str(Path.cwd())
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)
