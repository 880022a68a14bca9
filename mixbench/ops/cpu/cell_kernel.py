"""Cells of gated delta-rule memory on the CPU, compiled by numba.

Axes: T time, H heads, K key width, V value width, C tokens a chunk; W write and R read slots of a
token.

A cell has a list of events in the order of time: writes and reads, each with a token and a weight.
A write with weight w is a delta-rule step with gates `alpha^w` and `beta w`; a read adds its weight
times `S q`. The list is worked off in chunks of at most C writes and C reads. With the decays
`D_i[j]` from write j of the chunk to event i and `g_i` from its start, the state S that enters the
chunk, `A[i, j] = (k_i . k_j) D_i[j]` for j < i and `P[r, j] = (q_r . k_j) D_r[j]`, the errors E are

    e_i = v_i - g_i S k_i - sum_j A[i, j] u_j,    u_i = beta_i w_i e_i,

a read is `g_r S q_r + sum_j P[r, j] u_j`, and `g S + sum_j D[j] u_j k_j^T` leaves the chunk. Decays
are products of gates and never quotients, so that gates near 0 lose nothing, and only the chunk's
scalars depend on the cell's weights. All of it stays in the core's own cache. The gradient goes
through the list anew and then back: memory is linear in the length of the longest list.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from mixbench.ops.cpu.compiling import compile_once, vector_code
from mixbench.ops.cpu.simd import (
    add_scaled,
    copy,
    decay,
    dot,
    fill,
    multiply,
    product,
    scale,
    transpose,
)

# A row of a chunk's pairs is one vector register of 32-bit floats.
CHUNK = 16


@cache
def cell_kernel(K: int, V: int) -> Callable[..., None]:
    """The kernel for keys and values of these widths.

    It works on cells `first` to `last - 1` and adds to the arrays that it is given: to `out` and
    `final_state` forward, to all that begin with `d_` backward. Rows of q, k `[N, K]` and of v and
    out `[N, V]` are numbered `token * H + head`, where a token's number also says its sequence.
    Cell c has the events `starts[c]` to `starts[c + 1] - 1`, with their `tokens` and `slots`: write
    slots first, then read slots. States `[cells * H * K, V]` that enter and leave the cells are
    empty arrays `[0, V]` where cells begin with nothing and end unseen.
    """
    C = CHUNK
    whole = K // C * C
    vectors = vector_code()

    @compile_once
    def run(
        first, last, starts, tokens, slots,
        q, k, v, log_alpha, beta, w_write, w_read, initial_state,
        backward, out, final_state,
        d_out, d_final_state,
        d_q, d_k, d_v, d_log_alpha, d_beta, d_w_write, d_w_read, d_initial_state,
    ):  # fmt: skip
        assert vectors
        dtype = q.dtype
        zero, one = dtype.type(0), dtype.type(1)
        smallest = dtype.type(1e-30 if q.itemsize == 4 else 1e-290)
        H, W = log_alpha.shape[1], w_write.shape[1]
        enters, leaves_last = (
            len(initial_state) > 0,
            (len(d_final_state) if backward else len(final_state)) > 0,
        )
        longest = 0
        for c in range(first, last):
            longest = max(longest, starts[c + 1] - starts[c])
        rows, chunks = longest + C, longest // C + 2

        # Of a list: its writes, its reads, and where its chunks begin. Row i of D_write holds the
        # decays to write i, of D_after those to the end of a chunk.
        write_token, write_slot = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        read_token, read_slot = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        seen = np.zeros(rows, np.int64)
        write_chunk, read_chunk = np.zeros(chunks, np.int64), np.zeros(chunks, np.int64)
        Kl, Ql, E = (
            np.zeros((rows, K), dtype),
            np.zeros((rows, K), dtype),
            np.zeros((rows, V), dtype),
        )
        bw, g_write, g_read = np.zeros(rows, dtype), np.zeros(rows, dtype), np.zeros(rows, dtype)
        D_write, D_read = np.zeros((rows, C), dtype), np.zeros((rows, C), dtype)
        A, P = np.zeros((rows, C), dtype), np.zeros((rows, C), dtype)
        D_after, g_after = np.zeros((chunks, C), dtype), np.zeros(chunks, dtype)
        states = np.zeros(((chunks + 1 if backward else 1) * K, V), dtype)
        # Of a chunk.
        D, KT = np.zeros((1, C), dtype), np.zeros((K, C), dtype)
        U, X, KD = np.zeros((C, V), dtype), np.zeros((C, V), dtype), np.zeros((C, K), dtype)
        dS, dST, ST = np.zeros((K, V), dtype), np.zeros((V, K), dtype), np.zeros((V, K), dtype)
        dO, dU, UT = np.zeros((C, V), dtype), np.zeros((C, V), dtype), np.zeros((V, C), dtype)
        dQ, dK, from_S = np.zeros((C, K), dtype), np.zeros((C, K), dtype), np.zeros((C, K), dtype)
        YQ, YK = np.zeros((C, C), dtype), np.zeros((C, C), dtype)
        ZQ, ZK, Z = np.zeros((C, C), dtype), np.zeros((C, C), dtype), np.zeros((1, C), dtype)
        zq, zk, d_bw = np.zeros(C, dtype), np.zeros(C, dtype), np.zeros(C, dtype)
        before = np.zeros((C, C), dtype)
        for i in range(C):
            before[i, :i] = one

        for c in range(first, last):
            for h in range(H):
                # The list of one cell in one head.
                nw, nr, n, w0, r0, g = 0, 0, 0, 0, 0, one
                fill(C, D, 0, zero)
                for event in range(starts[c], starts[c + 1]):
                    token, slot = tokens[event], slots[event]
                    write = slot < W
                    if not write and nw == 0 and not enters:
                        continue
                    if (nw - w0 if write else nr - r0) == C:
                        copy(C, D_after, n, D, 0)
                        g_after[n] = g
                        n += 1
                        write_chunk[n], read_chunk[n] = nw, nr
                        w0, r0, g = nw, nr, one
                        fill(C, D, 0, zero)
                    row = token * H + h
                    if write:
                        w = w_write[token, slot]
                        a = dtype.type(math.exp(w * log_alpha[token, h]))
                        g = g * a if g * a > smallest else zero
                        decay(C, D, 0, a, D, 0, smallest)
                        copy(C, D_write, nw, D, 0)
                        D[0, nw - w0] = one
                        g_write[nw], bw[nw] = g, beta[token, h] * w
                        write_token[nw], write_slot[nw] = token, slot
                        copy(K, Kl, nw, k, row)
                        copy(V, E, nw, v, row)
                        nw += 1
                    else:
                        copy(C, D_read, nr, D, 0)
                        g_read[nr] = g
                        read_token[nr], read_slot[nr], seen[nr] = token, slot - W, nw - w0
                        copy(K, Ql, nr, q, row)
                        nr += 1
                if nr == 0 and not leaves_last:
                    continue
                copy(C, D_after, n, D, 0)
                g_after[n] = g
                n += 1
                write_chunk[n], read_chunk[n] = nw, nr

                if enters:
                    for y in range(K):
                        copy(V, states, y, initial_state, (c * H + h) * K + y)
                for z in range(n):
                    w0, r0 = write_chunk[z], read_chunk[z]
                    mw, mr = write_chunk[z + 1] - w0, read_chunk[z + 1] - r0
                    has_state, leaves = z > 0 or enters, z + 1 < n or leaves_last
                    s0 = z * K if backward else 0
                    s1 = s0 + K if backward else 0
                    transpose(C, KT, 0, Kl, w0)
                    product(C, False, False, A, w0, mw, Kl, w0, KT, 0, K)
                    for i in range(w0, w0 + mw):
                        multiply(C, A, i, -one, A, i, D_write, i)
                    product(C, False, False, P, r0, mr, Ql, r0, KT, 0, K)
                    for i in range(r0, r0 + mr):
                        multiply(C, P, i, one, P, i, D_read, i)
                    if has_state:
                        product(V, False, False, X, 0, mw, Kl, w0, states, s0, K)
                        for i in range(mw):
                            add_scaled(V, E, w0 + i, -g_write[w0 + i], X, i)
                    for i in range(mw):
                        product(V, True, False, E, w0 + i, 1, A, w0 + i, U, 0, i)
                        scale(V, U, i, bw[w0 + i], E, w0 + i)
                    if not backward:
                        product(V, False, False, X, 0, mr, P, r0, U, 0, mw)
                        if has_state:
                            for i in range(mr):
                                scale(K, KD, i, g_read[r0 + i], Ql, r0 + i)
                            product(V, True, False, X, 0, mr, KD, 0, states, s0, K)
                        for i in range(mr):
                            token = read_token[r0 + i]
                            w = w_read[token, read_slot[r0 + i]]
                            add_scaled(V, out, token * H + h, w, X, i)
                    if leaves:
                        for i in range(mw):
                            scale(K, KD, i, D_after[z, i], Kl, w0 + i)
                        if has_state:
                            for y in range(K):
                                scale(V, states, s1 + y, g_after[z], states, s0 + y)
                            product(V, True, True, states, s1, K, KD, 0, U, 0, mw)
                        else:
                            product(V, False, True, states, s1, K, KD, 0, U, 0, mw)
                if leaves_last and not backward:
                    for y in range(K):
                        copy(V, final_state, (c * H + h) * K + y, states, y)
                if not backward:
                    continue

                if leaves_last:
                    for y in range(K):
                        copy(V, dS, y, d_final_state, (c * H + h) * K + y)
                for z in range(n - 1, -1, -1):
                    w0, r0 = write_chunk[z], read_chunk[z]
                    mw, mr = write_chunk[z + 1] - w0, read_chunk[z + 1] - r0
                    has_state, leaves = z > 0 or enters, z + 1 < n or leaves_last
                    s0 = z * K
                    for i in range(mw):
                        scale(V, U, i, bw[w0 + i], E, w0 + i)
                    transpose(C, UT, 0, U, 0)
                    for i in range(mr):
                        copy(V, dO, i, d_out, read_token[r0 + i] * H + h)
                    product(C, False, False, YQ, 0, mr, dO, 0, UT, 0, V)
                    if has_state:
                        for y in range(0, whole, C):
                            transpose(C, ST, y, states, s0 + y)
                        for y in range(whole, K):
                            for x in range(V):
                                ST[x, y] = states[s0 + y, x]
                        product(K, False, False, from_S, 0, mr, dO, 0, ST, 0, V)
                    # Until its weight's gradient is taken, a read's row is without its weight.
                    for i in range(mr):
                        token, slot = read_token[r0 + i], read_slot[r0 + i]
                        w = w_read[token, slot]
                        zq[i] = zero
                        if has_state:
                            zq[i] = g_read[r0 + i] * dot(K, Ql, r0 + i, from_S, i)
                            scale(K, dQ, i, w * g_read[r0 + i], from_S, i)
                        d_w_read[token, slot] += zq[i] + dot(C, P, r0 + i, YQ, i)
                        zq[i] *= w
                        multiply(C, ZQ, i, w, P, r0 + i, YQ, i)
                        multiply(C, YQ, i, w, D_read, r0 + i, YQ, i)
                        scale(V, dO, i, w, dO, i)
                    # What the state that leaves the chunk asks for.
                    fill(C, Z, 0, zero)
                    zg = zero
                    if leaves:
                        for y in range(0, whole, C):
                            transpose(C, dST, y, dS, y)
                        for y in range(whole, K):
                            for x in range(V):
                                dST[x, y] = dS[y, x]
                        product(V, False, False, dU, 0, mw, Kl, w0, dS, 0, K)
                        product(K, False, False, dK, 0, mw, U, 0, dST, 0, V)
                        for i in range(mw):
                            b = D_after[z, i]
                            scale(V, dU, i, b, dU, i)
                            scale(K, dK, i, b, dK, i)
                            Z[0, i] = dot(V, dU, i, U, i)
                        if has_state:
                            for y in range(K):
                                zg += dot(V, dS, y, states, s0 + y)
                            zg *= g_after[z]
                        product(V, True, True, dU, 0, mw, P, r0, dO, 0, mr)
                    else:
                        product(V, False, True, dU, 0, mw, P, r0, dO, 0, mr)
                        for i in range(mw):
                            fill(K, dK, i, zero)
                    # From the gradient of U, last row first, to that of E.
                    for i in range(mw - 1, -1, -1):
                        d_bw[i] = dot(V, E, w0 + i, dU, i)
                        scale(V, dU, i, bw[w0 + i], dU, i)
                        product(V, True, True, dU, 0, i, A, w0 + i, dU, i, 1)
                    product(C, False, False, YK, 0, mw, dU, 0, UT, 0, V)
                    if has_state:
                        product(K, False, False, from_S, 0, mw, dU, 0, ST, 0, V)
                    for i in range(mw):
                        multiply(C, ZK, i, one, A, w0 + i, YK, i)
                        multiply(C, YK, i, -one, D_write, w0 + i, YK, i)
                        zk[i] = zero
                        if has_state:
                            b = -g_write[w0 + i]
                            zk[i] = b * dot(K, Kl, w0 + i, from_S, i)
                            add_scaled(K, dK, i, b, from_S, i)
                    if has_state:
                        product(K, True, False, dQ, 0, mr, YQ, 0, Kl, w0, mw)
                    else:
                        product(K, False, False, dQ, 0, mr, YQ, 0, Kl, w0, mw)
                    product(K, True, False, dK, 0, mw, YK, 0, Kl, w0, mw)
                    product(K, True, True, dK, 0, mw, YK, 0, Kl, w0, mw)
                    product(K, True, True, dK, 0, mw, YQ, 0, Ql, r0, mr)
                    for i in range(mr):
                        add_scaled(K, d_q, read_token[r0 + i] * H + h, one, dQ, i)
                    # A write's gate has part in every decay from before it to after it.
                    r = mr - 1
                    for i in range(mw, -1, -1):
                        while r >= 0 and seen[r0 + r] == i:
                            add_scaled(C, Z, 0, one, ZQ, r)
                            zg += zq[r]
                            r -= 1
                        if i > 0:
                            i -= 1
                            add_scaled(C, Z, 0, one, ZK, i)
                            zg += zk[i]
                            d_log = zg + dot(C, Z, 0, before, i)
                            token, slot = write_token[w0 + i], write_slot[w0 + i]
                            w = w_write[token, slot]
                            d_w_write[token, slot] += (
                                d_log * log_alpha[token, h] + d_bw[i] * beta[token, h]
                            )
                            d_log_alpha[token, h] += d_log * w
                            d_beta[token, h] += d_bw[i] * w
                            add_scaled(V, d_v, token * H + h, one, dU, i)
                            add_scaled(K, d_k, token * H + h, one, dK, i)
                    # On to the state that enters the chunk.
                    if has_state:
                        if leaves:
                            for y in range(K):
                                scale(V, dS, y, g_after[z], dS, y)
                        else:
                            for y in range(K):
                                fill(V, dS, y, zero)
                        for i in range(mr):
                            scale(K, KD, i, g_read[r0 + i], Ql, r0 + i)
                        product(V, True, True, dS, 0, K, KD, 0, dO, 0, mr)
                        for i in range(mw):
                            scale(K, KD, i, -g_write[w0 + i], Kl, w0 + i)
                        product(V, True, True, dS, 0, K, KD, 0, dU, 0, mw)
                if enters:
                    for y in range(K):
                        copy(V, d_initial_state, (c * H + h) * K + y, dS, y)

    return run
