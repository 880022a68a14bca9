"""Where Hydra looks for launchers. It imports this at every start, so nothing heavy may be here."""

from mixbench import launchers


class SubmititLocal(launchers.SubmititLocal):
    """`mixbench.launchers.SubmititLocal` under the name that Hydra accepts."""


class SubmititSlurm(launchers.SubmititSlurm):
    """`mixbench.launchers.SubmititSlurm` under the name that Hydra accepts."""


class Ray(launchers.Ray):
    """`mixbench.launchers.Ray` under the name that Hydra accepts."""
