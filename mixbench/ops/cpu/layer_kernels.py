"""What stands around a mixer, in one pass over memory each, compiled by numba for the CPU.

PyTorch composes an RMS norm of some ten passes, forward and backward, and a gated unit of eight.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from mixbench.ops.cpu.compiling import compile_once, vector_code
from mixbench.ops.cpu.simd import (
    add_product,
    add_scaled,
    dot,
    fill,
    multiply,
    silu_product,
    silu_product_gradients,
)

ROWS_A_BLOCK = 128
"""The gradient of a norm's weight is added up by blocks of rows, whatever the number of threads."""


@cache
def rms_norm_kernel(D: int) -> Callable[..., None]:
    """For rows of width D, blocks `begin` to `end - 1`.

    Forward writes `y = x r w` with `r = 1 / sqrt(mean(x^2) + eps)`, `[N, D]`, and r `[N]`; backward
    reads y's gradient in the same place and r, and writes those of x `[N, D]` and, by blocks, of w.
    """
    vectors = vector_code()

    @compile_once
    def run(begin, end, eps, x, w, backward, y, r, d_x, d_w):
        assert vectors
        one = x.dtype.type(1)
        for block in range(begin, end):
            if backward:
                fill(D, d_w, block, x.dtype.type(0))
            for n in range(block * ROWS_A_BLOCK, min(len(x), (block + 1) * ROWS_A_BLOCK)):
                if not backward:
                    r[n] = one / math.sqrt(dot(D, x, n, x, n) / x.dtype.type(D) + eps)
                    multiply(D, y, n, r[n], x, n, w, 0)
                    continue
                # Zero is what squares that overflowed leave; their gradient is not a number.
                a = r[n] if r[n] > 0 else x.dtype.type(math.nan)
                add_product(D, d_w, block, a, y, n, x, n)
                multiply(D, d_x, n, a, y, n, w, 0)
                mean = dot(D, d_x, n, x, n) / x.dtype.type(D)
                add_scaled(D, d_x, n, -mean * a * a, x, n)

    return run


@cache
def silu_product_kernel(width: int) -> Callable[..., None]:
    """For rows of 2 `width` numbers, gates first: `silu(gate) up`, rows `begin` to `end - 1`.

    Forward writes `[N, width]`; backward reads the gradient there and writes `[N, 2 width]`.
    """
    vectors = vector_code()
    lanes = math.gcd(width, 16)
    parts = width // lanes

    @compile_once
    def run(begin, end, x, backward, y, d_x):
        assert vectors
        for n in range(begin, end):
            for part in range(parts):
                gate, out = n * 2 * parts + part, n * parts + part
                up = gate + parts
                if backward:
                    silu_product_gradients(lanes, d_x, gate, d_x, up, x, gate, x, up, y, out)
                else:
                    silu_product(lanes, y, out, x, gate, x, up)

    return run
