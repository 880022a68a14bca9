"""Independent random streams keyed by (seed, purpose).

Two streams with different purposes never share numbers, and none depends on how much was drawn
from another one, on the mixer, or on the global generators.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


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


def _sequence(seed: int, purpose: tuple[str | int, ...]) -> np.random.SeedSequence:
    # repr keeps ("a", "b") apart from ("a, b",) and 1 apart from "1".
    digest = hashlib.sha256(repr(purpose).encode()).digest()
    words = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    return np.random.SeedSequence(entropy=seed, spawn_key=words)
