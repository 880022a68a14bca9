"""Sequence mixers, one a file: projections and gates around an op."""
