"""Independent random streams keyed by (seed, purpose).

Two streams with different purposes never share numbers, and none depends on how much was drawn
from another one, on the mixer, or on the global generators.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # torch takes seconds to import, and the data side does not need it
    from torch import nn


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """A NumPy generator for one purpose, e.g. `stream(0, "data", "train")`."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose)))


def stream_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit integer for generators that take only an integer (torch), keyed like `stream`."""
    return int(_sequence(seed, purpose).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def torch_stream(seed: int, *purpose: str | int) -> Iterator[None]:
    """Draw from torch's global CPU generator as one stream, and put it back afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_seed(seed, *purpose))
        yield


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
    from mixbench.mixers.mixer import Mixer

    if isinstance(module, Mixer) and not hasattr(module, "reset_parameters"):
        return
    for name, child in module.named_children():
        init_parameters(child, seed, f"{path}.{name}" if path else name)
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        with torch_stream(seed, "init", path):
            reset()


def _sequence(seed: int, purpose: tuple[str | int, ...]) -> np.random.SeedSequence:
    # repr keeps ("a", "b") apart from ("a, b",) and 1 apart from "1".
    digest = hashlib.sha256(repr(purpose).encode()).digest()
    words = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    return np.random.SeedSequence(entropy=seed, spawn_key=words)
