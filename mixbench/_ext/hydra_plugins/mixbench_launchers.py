"""Where Hydra looks for launchers. It imports this at every start, so nothing heavy may be here."""

from mixbench.launch import local, ray_cluster, slurm


class SubmititLocal(local.SubmititLocal):
    """`mixbench.launch.local.SubmititLocal` under the name that Hydra accepts."""


class SubmititSlurm(slurm.SubmititSlurm):
    """`mixbench.launch.slurm.SubmititSlurm` under the name that Hydra accepts."""


class Ray(ray_cluster.Ray):
    """`mixbench.launch.ray_cluster.Ray` under the name that Hydra accepts."""
