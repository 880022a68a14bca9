"""The sweeper that `conf/train.yaml` names: a comparison or a grid."""

from __future__ import annotations

from typing import Any

from mixbench.sweeps.base import CheckedSweeper
from mixbench.sweeps.comparison import ComparisonSweeper
from mixbench.sweeps.grid import GridSweeper


class MixbenchSweeper(CheckedSweeper):
    """A comparison where `sweep` describes one, else the grid of all choices.

    Args:
        params: A grid's choices from the configuration.
    """

    def __init__(self, params: dict[str, str] | None) -> None:
        self.params = params

    def sweep(self, arguments: list[str]) -> Any:
        sweeper: CheckedSweeper = (
            GridSweeper(self.params) if self.base.sweep is None else ComparisonSweeper()
        )
        sweeper.setup(
            hydra_context=self.context, task_function=self.task_function, config=self.base
        )
        return sweeper.sweep(arguments)
