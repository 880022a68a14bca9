"""Hydra launchers for this machine, SLURM and Ray."""
