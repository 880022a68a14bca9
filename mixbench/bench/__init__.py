"""`mixbench bench`: what mixers cost in time and memory, as ratios measured in one run."""
