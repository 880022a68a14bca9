"""The gated delta rule (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464).

Axes: B batch, T time, H heads, K key width, V value width.

Per head and with keys of unit norm, `S <- a S + b (v - a S k) k^T` and `o = S q`, read after write.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mixbench.ops.cells import delta_cells
from mixbench.ops.precision import at_least_float32
from mixbench.ops.triangular import pair_decay, unit_triangular_solve


def naive_gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, beta: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The definition, one token at a time.

    Args:
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, T, H, K]`, of unit norm.
        v: Values `[B, T, H, V]`.
        alpha: Retention gates `[B, T, H]` in (0, 1].
        beta: Write gates `[B, T, H]` in [0, 1].
        state: State to start from, `[B, H, V, K]`; zero if not given.

    Returns:
        Outputs `[B, T, H, V]` and the state after the last token `[B, H, V, K]`.
    """
    B, T, H, K = q.shape
    V = v.shape[-1]
    S = v.new_zeros(B, H, V, K) if state is None else state
    outputs = []
    for t in range(T):
        S = alpha[:, t, :, None, None] * S
        error = v[:, t] - torch.einsum("bhvk,bhk->bhv", S, k[:, t])
        S = S + torch.einsum("bhv,bhk->bhvk", beta[:, t, :, None] * error, k[:, t])
        outputs.append(torch.einsum("bhvk,bhk->bhv", S, q[:, t]))
    out = torch.stack(outputs, dim=1) if outputs else v.new_zeros(B, 0, H, V)
    return out, S


@at_least_float32
def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor,
    beta: Tensor,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The same values, fast: on the CPU a compiled kernel, elsewhere `chunk_gated_delta_rule`.

    Both work in chunks and are exact; see `mixbench.ops.cpu.cell_kernel`. Here every sequence has
    one cell, which each token writes to and then reads with weight one.

    Arguments and returns as in `naive_gated_delta_rule`. Differentiable once.
    """
    if q.device.type != "cpu":
        return chunk_gated_delta_rule(q, k, v, alpha, beta, state)
    B, T, H, K = q.shape
    tokens = torch.arange(B * T).repeat_interleave(2)
    plan = (torch.arange(B + 1), 2 * T * torch.arange(B + 1), tokens, torch.arange(2).repeat(B * T))
    one = v.new_ones(B, T, 1)
    initial_state = v.new_empty(0, H, K, v.shape[-1]) if state is None else state.mT
    out, final_state = delta_cells(*plan, q, k, v, alpha.log(), beta, one, one, initial_state, True)
    return out, final_state.mT


@at_least_float32
def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor,
    beta: Tensor,
    state: Tensor | None = None,
    chunk_size: int = 32,
) -> tuple[Tensor, Tensor]:
    """The same values from chunks of `chunk_size` tokens (the WY form of arXiv 2412.06464).

    With the running log-decay G of a chunk, its entering state S and `D[i, j] = exp(G_i - G_j)` for
    j <= i, let `A = (K K^T) D` strictly below the diagonal and `P = (Q K^T) D` with it. The rule's
    errors E solve the unit lower-triangular system `(I + A diag(b)) E = V - exp(G) K S^T`, and

        O = exp(G) Q S^T + P (b E),    S <- exp(G_C) S + (b E)^T (exp(G_C - G) K).

    Decays appear only as differences that are at most zero, so gates near 0 underflow to the right
    value and nothing overflows; the system is solved by substitution, never by an inverse. Only
    the states are computed one chunk after another.

    Arguments and returns as in `naive_gated_delta_rule`. Differentiable once.
    """
    B, T, H, K = q.shape
    V = v.shape[-1]
    S = v.new_zeros(B, H, V, K) if state is None else state
    if T == 0:
        return v.new_zeros(B, 0, H, V), S
    C = min(chunk_size, T)
    N = -(-T // C)

    def to_chunks(x: Tensor, fill: float = 0.0) -> Tensor:
        """[B, T, H, ...] -> [B * H * N, C, ...]; padding must neither write nor decay."""
        x = x.transpose(1, 2).flatten(0, 1)
        if N * C > T:
            x = torch.cat([x, x.new_full((B * H, N * C - T, *x.shape[2:]), fill)], dim=1)
        return x.reshape(B * H * N, C, *x.shape[2:])

    # Running sums of logs can reach -600 where a float32 keeps only 4 digits behind the point.
    log_alpha = to_chunks(alpha, fill=1.0).double().log()
    out, S = _Chunks.apply(
        *map(to_chunks, (q, k, v)), log_alpha, to_chunks(beta)[..., None], S.flatten(0, 1)
    )
    out = out.reshape(B, H, N * C, V)[:, :, :T]
    return out.transpose(1, 2), S.unflatten(0, (B, H))


class _Chunks(torch.autograd.Function):
    """Outputs `[M, C, V]` and last states `[R, V, K]` of M = R N chunks, with gradients by hand.

    Takes q, k, v `[M, C, width]`, log alpha `[M, C]` (float64), beta `[M, C, 1]` and the states to
    start from `[R, V, K]`; N chunks follow each other in every one of the R sequences.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, b: Tensor, S: Tensor
    ) -> tuple[Tensor, Tensor]:
        V = v.shape[-1]
        G = log_alpha.cumsum(-1)
        D = pair_decay(G, v.dtype)
        g, e = G.exp().to(v.dtype)[..., None], (G[:, -1:] - G).exp().to(v.dtype)[..., None]
        gQ, gK, eK = g * q, g * k, e * k
        # Of A only what lies strictly below the diagonal is ever used.
        A, P = k.bmm(k.mT).mul_(D), q.bmm(k.mT).mul_(D)
        solved = unit_triangular_solve(A * b.mT, torch.cat([v, gK], dim=-1), upper=False)
        E, states = torch.empty_like(v), v.new_empty(len(v), V, k.shape[-1])
        last = S
        for n in _sequence(len(v), S):
            states[n] = last
            E[n] = torch.baddbmm(solved[n, :, :V], solved[n, :, V:], last.mT, alpha=-1)
            last = torch.baddbmm(g[n, -1:] * last, (b[n] * E[n]).mT, eK[n])
        out = torch.baddbmm(P.bmm(b * E), gQ, states.mT)
        ctx.save_for_backward(q, k, v, b, g, e, gQ, gK, eK, D, A, P, E, out, states, last)
        return out, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        q, k, v, b, g, e, gQ, gK, eK, D, A, P, E, out, states, last = ctx.saved_tensors
        dO, dS = grads[0].contiguous(), grads[1]
        V = v.shape[-1]
        U = b * E
        # The gradients of V and E are bZ and Z, with (I + A^T diag(b)) Z the gradient of U.
        rhs = torch.cat([P.mT.bmm(dO), eK], dim=-1)
        solved = unit_triangular_solve((A * b).mT, rhs, upper=True)
        from_outputs = dO.mT.bmm(gQ)
        Z, d_after = torch.empty_like(v), torch.empty_like(states)
        for n in reversed(_sequence(len(v), last)):
            d_after[n] = dS
            Z[n] = torch.baddbmm(solved[n, :, :V], solved[n, :, V:], dS.mT)
            dS = torch.baddbmm(g[n, -1:] * dS + from_outputs[n], (b[n] * Z[n]).mT, gK[n], alpha=-1)
        dV = b * Z
        d_QK = dO.bmm(U.mT).mul_(D)
        d_KK = dV.bmm(U.mT).mul_(D)
        d_KK.diagonal(dim1=-2, dim2=-1).zero_()
        dQ = (g * dO).bmm(states).baddbmm_(d_QK, k)
        dK = (d_KK + d_KK.mT).bmm(k).neg_().baddbmm_(d_QK.mT, q)
        dK.baddbmm_(g * dV, states, alpha=-1).baddbmm_(e * U, d_after)
        # A pair's decay has the gradient that its product has. Summed over pairs that is `o . do`
        # for a query, less `v . dv` for a key, and S . dS for what leaves the chunk.
        dG = ((out * dO).sum(-1) - (v * dV).sum(-1)).double()
        N = len(v) // len(last)
        final_state = torch.cat([states.unflatten(0, (-1, N))[:, 1:], last[:, None]], dim=1)
        dG[:, -1] += (final_state.flatten(0, 1) * d_after).sum((-2, -1))
        return dQ, dK, dV, dG.flip(-1).cumsum(-1).flip(-1), (E * Z).sum(-1, keepdim=True), dS


def _sequence(chunks: int, S: Tensor) -> list[slice]:
    """Which chunks come first, second, ... in all sequences."""
    N = chunks // len(S)
    return [slice(n, None, N) for n in range(N)]
