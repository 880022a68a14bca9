"""Where Hydra looks for sweepers. It imports this at every start, so nothing heavy may be here."""

from mixbench.sweeps import entry


class MixbenchSweeper(entry.MixbenchSweeper):
    """`mixbench.sweeps.entry.MixbenchSweeper` under the name that Hydra accepts."""
