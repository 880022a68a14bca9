"""How kernels are compiled for the CPU, and shared out to its threads."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

from mixbench.ops.cpu import simd


def compile_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile for the CPU at the first call, and keep the result on disk where that is possible."""
    options = partial(numba.njit, nogil=True, error_model="numpy", fastmath={"contract"})
    try:
        return options(cache=True)(function)
    except RuntimeError:  # numba finds no folder that it may write to
        return options()(function)


def vector_code() -> int:
    """A number that changes when `mixbench.ops.cpu.simd` does, and is never 0.

    What numba keeps on disk belongs to the kernel's own file and its free variables. A kernel that
    has this number among them is compiled anew when the instructions it is made of change.
    """
    return 1 + zlib.crc32(Path(simd.__file__).read_bytes())


def parallel_for(work: Callable[[int, int], object], items: int) -> None:
    """`work(first, last)` on equal shares of `items`, one for each of PyTorch's threads.

    What a share computes must not depend on where it begins.
    """
    threads = max(1, min(torch.get_num_threads(), items))
    if threads == 1:
        work(0, items)
        return
    shares = list(pairwise(np.linspace(0, items, threads + 1).astype(int).tolist()))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda share: work(*share), shares))
