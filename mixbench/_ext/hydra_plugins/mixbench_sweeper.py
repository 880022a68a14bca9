"""Where Hydra looks for sweepers. It imports this at every start, so nothing heavy may be here."""

from mixbench import comparison_sweeper


class MixbenchSweeper(comparison_sweeper.MixbenchSweeper):
    """`mixbench.comparison_sweeper.MixbenchSweeper` under the name that Hydra accepts."""
