"""A causal level of the spiderweb on the CPU, compiled by numba.

Axes: B batch, T time, H heads, K width of a head.

A cell is gone through in the order of time with running sums of its queries, keys and values, so
that a token's prefix means are there when its turn comes; a complete cell leaves its last ones to
the cells behind it. Each token meets its own prefix and at most `radius` cells: O(T) for a level.
The gradient goes back cell by cell, when all later ones have said what they want of this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from mixbench.ops.cpu.compiling import compile_once, vector_code
from mixbench.ops.cpu.simd import add_scaled, copy, dot, fill, scale


@cache
def prefix_attention_kernel(K: int) -> Callable[..., None]:
    """The kernel for heads of width K, on sequences `begin` to `end - 1`.

    Queries, keys and values are rows `[B * T * 3 * H, K]`. Forward writes `out` `[B * T * H, K]`;
    backward takes its gradient, times `factor`, in the same place and adds to `d_rows`.
    """
    vectors = vector_code()

    @compile_once
    def run(begin, end, T, H, size, radius, first, rows, backward, factor, out, d_rows):
        assert vectors
        dtype = rows.dtype
        zero, one = dtype.type(0), dtype.type(1)
        scaling, factor = dtype.type(1 / math.sqrt(K)), dtype.type(factor)
        cells = (T + size - 1) // size
        # Prefix means of one cell, the last ones of all cells, and their gradients: q, k, v.
        Q, P, V = np.zeros((size, K), dtype), np.zeros((size, K), dtype), np.zeros((size, K), dtype)
        dQ, dP, dV = np.zeros_like(Q), np.zeros_like(P), np.zeros_like(V)
        keys, values = np.zeros((cells, K), dtype), np.zeros((cells, K), dtype)
        d_keys, d_values = np.zeros((cells, K), dtype), np.zeros((cells, K), dtype)
        sums = np.zeros((3, K), dtype)
        weights, d_weights = np.zeros(radius + 1, dtype), np.zeros(radius + 1, dtype)
        for b in range(begin, end):
            for h in range(H):
                if backward:
                    for c in range(cells):
                        fill(K, d_keys, c, zero)
                        fill(K, d_values, c, zero)
                # Backward, what complete cells leave is needed first: a turn without outputs.
                for turn in range(2 if backward else 1):
                    back = turn == 1
                    for step in range(cells):
                        c = cells - 1 - step if back else step
                        t0 = c * size
                        n = min(size, T - t0)
                        for x in range(3):
                            fill(K, sums, x, zero)
                        if backward and not back:
                            for i in range(n):
                                row = (b * T + t0 + i) * 3 * H + h
                                add_scaled(K, sums, 1, one, rows, row + H)
                                add_scaled(K, sums, 2, one, rows, row + 2 * H)
                            scale(K, keys, c, one / dtype.type(n), sums, 1)
                            scale(K, values, c, one / dtype.type(n), sums, 2)
                            continue
                        for i in range(n):
                            row = (b * T + t0 + i) * 3 * H + h
                            share = one / dtype.type(i + 1)
                            for x in range(3):
                                add_scaled(K, sums, x, one, rows, row + x * H)
                            scale(K, Q, i, share, sums, 0)
                            scale(K, P, i, share, sums, 1)
                            scale(K, V, i, share, sums, 2)
                        copy(K, keys, c, P, n - 1)
                        copy(K, values, c, V, n - 1)
                        low = max(0, c - radius)
                        near = c - low
                        for i in range(n):
                            token = (b * T + t0 + i) * H + h
                            if back:
                                fill(K, dQ, i, zero)
                                fill(K, dP, i, zero)
                                fill(K, dV, i, zero)
                            if t0 + i < first:
                                continue
                            highest = scaling * dot(K, Q, i, P, i)
                            weights[near] = highest
                            for m in range(near):
                                weights[m] = scaling * dot(K, Q, i, keys, low + m)
                                highest = max(highest, weights[m])
                            total = zero
                            for m in range(near + 1):
                                weights[m] = math.exp(weights[m] - highest)
                                total += weights[m]
                            for m in range(near + 1):
                                weights[m] /= total
                            if not back:
                                scale(K, out, token, weights[near], V, i)
                                for m in range(near):
                                    add_scaled(K, out, token, weights[m], values, low + m)
                                continue
                            d_weights[near] = dot(K, out, token, V, i)
                            mean = weights[near] * d_weights[near]
                            for m in range(near):
                                d_weights[m] = dot(K, out, token, values, low + m)
                                mean += weights[m] * d_weights[m]
                            for m in range(near):
                                share = factor * weights[m]
                                d = scaling * share * (d_weights[m] - mean)
                                add_scaled(K, dQ, i, d, keys, low + m)
                                add_scaled(K, d_keys, low + m, d, Q, i)
                                add_scaled(K, d_values, low + m, share, out, token)
                            share = factor * weights[near]
                            d = scaling * share * (d_weights[near] - mean)
                            add_scaled(K, dQ, i, d, P, i)
                            add_scaled(K, dP, i, d, Q, i)
                            add_scaled(K, dV, i, share, out, token)
                        if not back:
                            continue
                        add_scaled(K, dP, n - 1, one, d_keys, c)
                        add_scaled(K, dV, n - 1, one, d_values, c)
                        # A token has part in its own and all later prefixes of its cell.
                        for x in range(3):
                            fill(K, sums, x, zero)
                        for i in range(n - 1, -1, -1):
                            row = (b * T + t0 + i) * 3 * H + h
                            share = one / dtype.type(i + 1)
                            add_scaled(K, sums, 0, share, dQ, i)
                            add_scaled(K, sums, 1, share, dP, i)
                            add_scaled(K, sums, 2, share, dV, i)
                            for x in range(3):
                                add_scaled(K, d_rows, row + x * H, one, sums, x)

    return run
