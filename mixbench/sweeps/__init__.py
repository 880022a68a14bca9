"""Hydra sweepers: grids and planned comparisons."""
