"""What we use of Hydra's private modules, so that one file has to follow when they change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import _locate
from hydra.core.override_parser.types import Override


def locate(path: str) -> Any:
    """What a dotted path names: Hydra's `get_object`, without the lines that it prints."""
    return _locate(path)


def grid_jobs(overrides: Sequence[Override]) -> Sequence[Sequence[str]]:
    """The overrides of every job of a grid, all combinations of the overrides' choices."""
    (jobs,) = BasicSweeper.split_arguments(list(overrides), None)
    return jobs
