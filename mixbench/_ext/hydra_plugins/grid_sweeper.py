"""Where Hydra looks for sweepers. It imports this at every start, so nothing heavy may be here."""

from mixbench import sweeper


class GridSweeper(sweeper.GridSweeper):
    """`mixbench.sweeper.GridSweeper` under the name that Hydra accepts."""
