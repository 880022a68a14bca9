"""The gated delta rule (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464).

Axes: B batch, T time, H heads, K key width, V value width.

Per head and with keys of unit norm, `S <- a S + b (v - a S k) k^T` and `o = S q`, read after write.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mixbench.ops.precision import at_least_float32


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
def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor,
    beta: Tensor,
    state: Tensor | None = None,
    chunk_size: int = 64,
) -> tuple[Tensor, Tensor]:
    """The same values from chunks of `chunk_size` tokens (the WY form of arXiv 2412.06464).

    Inside a chunk with running log-decay `G` and entering state `S0`, the written values solve the
    unit lower-triangular system `(I + A) U = b (V - exp(G) K S0^T)` with
    `A[i, j] = b_i (k_i . k_j) exp(G_i - G_j)` for j < i. Decays appear only as differences that are
    at most zero, so gates near 0 underflow to the right value and nothing overflows; the system is
    solved by substitution, never by an inverse.

    Arguments and returns as in `naive_gated_delta_rule`.
    """
    B, T, H, K = q.shape
    V = v.shape[-1]
    S = v.new_zeros(B, H, V, K) if state is None else state
    if T == 0:
        return v.new_zeros(B, 0, H, V), S
    C = min(chunk_size, T)
    pad = -T % C
    N = (T + pad) // C

    def to_chunks(x: Tensor, fill: float = 0.0) -> Tensor:
        """[B, T, H, ...] -> [B, H, N, C, ...]; padding must neither write nor decay."""
        x = x.transpose(1, 2)
        if pad:
            x = torch.cat([x, x.new_full((B, H, pad, *x.shape[3:]), fill)], dim=2)
        return x.reshape(B, H, N, C, *x.shape[3:])

    q, k, v, beta = to_chunks(q), to_chunks(k), to_chunks(v), to_chunks(beta)
    # Running sums of logs can reach -600 where a float32 keeps only 4 digits behind the point.
    G = to_chunks(alpha, fill=1.0).double().log().cumsum(-1)
    decay_from_start = G.exp().to(v.dtype)
    decay_to_end = (G[..., -1:] - G).exp().to(v.dtype)
    difference = G[..., :, None] - G[..., None, :]
    lower = torch.ones(C, C, dtype=torch.bool, device=v.device).tril()
    decay = difference.masked_fill(~lower, -torch.inf).exp().to(v.dtype)

    A = beta[..., None] * (k @ k.transpose(-1, -2)) * decay
    rhs = torch.cat([beta[..., None] * v, (beta * decay_from_start)[..., None] * k], dim=-1)
    # unitriangular: only what lies strictly below the diagonal of A is read.
    solved = torch.linalg.solve_triangular(A, rhs, upper=False, unitriangular=True)
    written, seen = solved.split([V, K], dim=-1)
    scores = (q @ k.transpose(-1, -2)) * decay
    q = q * decay_from_start[..., None]
    k = k * decay_to_end[..., None]
    chunk_decay = decay_from_start[..., -1, None, None]

    outputs = []
    for n in range(N):
        U = written[:, :, n] - seen[:, :, n] @ S.transpose(-1, -2)
        outputs.append(q[:, :, n] @ S.transpose(-1, -2) + scores[:, :, n] @ U)
        S = chunk_decay[:, :, n] * S + U.transpose(-1, -2) @ k[:, :, n]
    out = torch.stack(outputs, dim=2).reshape(B, H, N * C, V)[:, :, :T]
    return out.transpose(1, 2), S
