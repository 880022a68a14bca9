"""Where Hydra looks for sweepers. It imports this at every start, so nothing heavy may be here."""

from mixbench import comparison_sweeper


class ComparisonSweeper(comparison_sweeper.ComparisonSweeper):
    """`mixbench.comparison_sweeper.ComparisonSweeper` under the name that Hydra accepts."""
