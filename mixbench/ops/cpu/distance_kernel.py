"""Sums of absolute differences between all pairs of rows, and their gradient, compiled by numba.

Axes: N pairs of matrices, T rows of the one, S rows of the other, K numbers a row.

Sixteen rows of the one side lie across a vector's lanes, numbers of the other side are repeated in
it: a pair and number costs a subtraction, a sign bit and an addition, without horizontal sums. The
gradient does the same for either side in turn and needs no array beyond those it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from mixbench.ops.cpu.compiling import compile_once, vector_code
from mixbench.ops.cpu.simd import distances, signed_sums, transpose

_LANES = 16


@compile_once
def _some_lanes(lanes, rows, first):
    """What `transpose` does, where the rows end before the lanes do."""
    lanes[:] = 0
    for s in range(first, len(rows)):
        for c in range(rows.shape[1]):
            lanes[c, s - first] = rows[s, c]


@cache
def l1_distances() -> Callable[..., None]:
    """Writes `sum_c |q[t, c] - k[s, c]|` of q `[N, T, K]` and k `[N, S, K]` into out `[N, T, S]`.

    For the pairs `first` to `last - 1`.
    """
    vectors = vector_code()
    L = _LANES

    @compile_once
    def run(first, last, q, k, out):
        assert vectors
        T, (S, K) = q.shape[1], k.shape[1:]
        lanes, rest = np.zeros((K, L), q.dtype), np.zeros((T, L), q.dtype)
        for n in range(first, last):
            for s in range(0, S - L + 1, L):
                transpose(L, lanes, 0, k[n], s)
                distances(L, out[n], s, T, q[n], 0, lanes, K)
            s = S // L * L
            if s < S:
                _some_lanes(lanes, k[n], s)
                distances(L, rest, 0, T, q[n], 0, lanes, K)
                out[n, :, s:] = rest[:, : S - s]

    return run


@cache
def l1_gradients() -> Callable[..., None]:
    """Writes the gradients of q and k for that of `l1_distances`' out; all shapes as there.

    A difference of zero has gradient zero.
    """
    vectors = vector_code()
    L = _LANES

    @compile_once
    def run(first, last, q, k, d_out, d_q, d_k):
        assert vectors
        T, (S, K) = q.shape[1], k.shape[1:]
        lanes, sums = np.zeros((K, L), q.dtype), np.zeros((K, L), q.dtype)
        columns = np.zeros((max(S, T), L), q.dtype)
        for n in range(first, last):
            for s in range(0, S, L):
                wide = min(L, S - s)
                if wide == L:
                    transpose(L, lanes, 0, k[n], s)
                    signed_sums(L, sums, K, lanes, d_out[n], s, T, q[n], 0)
                else:
                    _some_lanes(lanes, k[n], s)
                    columns[:T, :wide] = d_out[n, :, s:]
                    columns[:T, wide:] = 0
                    signed_sums(L, sums, K, lanes, columns, 0, T, q[n], 0)
                d_k[n, s : s + wide] = sums[:, :wide].T
            for t in range(0, T, L):
                wide = min(L, T - t)
                if wide == L:
                    transpose(L, lanes, 0, q[n], t)
                    transpose(L, columns, 0, d_out[n], t)
                else:
                    _some_lanes(lanes, q[n], t)
                    columns[:S, :wide] = d_out[n, t:].T
                    columns[:S, wide:] = 0
                signed_sums(L, sums, K, lanes, columns, 0, S, k[n], 0)
                d_q[n, t : t + wide] = sums[:, :wide].T

    return run
