"""Initial values that depend on a parameter's name and the seed, and on nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mixbench.core.seeds import torch_stream

if TYPE_CHECKING:
    from torch import nn


def init_parameters(module: nn.Module, seed: int, path: str = "") -> None:
    """Draw initial values so that each parameter's depend on its name, not on what else exists.

    Every submodule that defines `reset_parameters` (PyTorch's convention) gets it called, children
    before parents, with a stream named after the submodule's path. Two models whose parameters
    share a name and a shape therefore start from the same values there.

    A mixer *without* `reset_parameters` is left exactly as its constructor made it, inside and out,
    so that special values set in a constructor are never overwritten.

    Args:
        module: What to initialise, in place.
        seed: The run's seed.
        path: The module's path in the whole model; give `blocks.0.mixer` to a mixer built alone to
            get the values that it has inside a model.
    """
    from mixbench.mixers.base import Mixer

    if isinstance(module, Mixer) and not hasattr(module, "reset_parameters"):
        return
    for name, child in module.named_children():
        init_parameters(child, seed, f"{path}.{name}" if path else name)
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        with torch_stream(seed, "init", path):
            reset()
