"""Spiderweb: attention among neighbouring cells, level by level over cells of growing size.

Axes: B batch, T time, D model width, H heads, C cells of a level.

Level l = 0..L has cells of `eta^l` tokens. At each level the means of the cells' *current* tokens
attend to the means of the cells within `radius`, and every token of a cell adds the result, times
the level's gate; the next level sees the updated tokens.

In the causal form a token asks with the mean of its own cell's prefix, and sees that prefix and the
`radius` complete cells before it. It takes part in level l only once its own prefix is longer than
`eta^(l-1)`, which is the number of levels that a sequence ending with it would have: so what a
token gets does not depend on how long the sequence will become.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mixbench.ops.spiderweb_levels import first_token, prefix_levels
from mixbench.ops.window_attention import window_attention, windows


@dataclass(frozen=True)
class Projections:
    """What turns cell means into queries, keys and values, and attended values into an update."""

    num_heads: int
    qkv_weight: Tensor
    """`[3 D, D]`: queries, keys, values, each of them heads side by side."""
    qkv_bias: Tensor
    """`[3 D]`."""
    out_weight: Tensor
    """`[D, D]`."""
    out_bias: Tensor
    """`[D]`."""

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`[B, C, D]` to q, k and v, `[B, H, C, D / H]` each."""
        qkv = F.linear(x, self.qkv_weight, self.qkv_bias)
        q, k, v = qkv.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return q, k, v

    def merge(self, x: Tensor) -> Tensor:
        """`[B, H, C, D / H]` to `[B, C, D]`."""
        return F.linear(x.transpose(1, 2).flatten(-2), self.out_weight, self.out_bias)


def num_levels(seq_len: int, eta: int) -> int:
    """The last level L of a sequence: the smallest with `eta^L >= seq_len`."""
    level, size = 0, 1
    while size < seq_len:
        level, size = level + 1, size * eta
    return level


def naive_spiderweb(
    x: Tensor, projections: Projections, gates: Tensor, eta: int, radius: int, causal: bool = False
) -> list[Tensor]:
    """The definition, cell by cell.

    Args:
        x: Tokens `[B, T, D]`.
        projections: See `Projections`.
        gates: One weight a level `[L + 1]`.
        eta: Growth of the cells from level to level.
        radius: Cells seen on each side (before the own one when causal).
        causal: Use each cell's prefix and earlier complete cells only.

    Returns:
        The tokens after each level, `L + 1` times `[B, T, D]`.
    """
    T = x.shape[1]
    after = []
    for level, gate in enumerate(gates):
        size = eta**level
        updates = []
        for t in range(T):
            c = t // size
            if causal and level > num_levels(t + 1, eta):
                updates.append(torch.zeros_like(x[:, 0]))
                continue
            own = x[:, c * size : t + 1] if causal else x[:, c * size : (c + 1) * size]
            neighbours = range(max(0, c - radius), c if causal else (T - 1) // size + 1)
            means = [
                own.mean(1) if n == c else x[:, n * size : (n + 1) * size].mean(1)
                for n in [*neighbours, *([c] if causal else [])]
                if n <= c + radius
            ]
            q, _, _ = projections.heads(own.mean(1, keepdim=True))
            _, k, v = projections.heads(torch.stack(means, dim=1))
            weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
            updates.append(projections.merge(weights @ v)[:, 0])
        x = x + gate * torch.stack(updates, dim=1)
        after.append(x)
    return after


def spiderweb_update(
    x: Tensor, projections: Projections, gates: Tensor, eta: int, radius: int, causal: bool = False
) -> Tensor:
    """What all levels together add to the tokens, `[B, T, D]`, all cells of a level at once.

    O(T (radius + 1)) a level. The causal form on the CPU never makes the tokens between the levels:
    it carries their queries, keys and values on, which are linear in the tokens, and a compiled
    kernel (`mixbench.ops.cpu.prefix_kernel`) takes their prefix means and attends.

    Arguments as in `naive_spiderweb`.
    """
    if causal and x.device.type == "cpu":
        return _carried_update(x, projections, gates, eta, radius)
    T, tokens = x.shape[1], x
    for level, gate in enumerate(gates):
        size = eta**level
        if causal:
            update = _causal_update(tokens, projections, level, eta, radius)
        else:
            q, k, v = projections.heads(_cell_means(tokens, size))
            cells = projections.merge(window_attention(q, k, v, radius, radius))
            update = cells.repeat_interleave(size, dim=1)[:, :T]
        tokens = tokens + gate * update
    return tokens - x


def _carried_update(
    x: Tensor, projections: Projections, gates: Tensor, eta: int, radius: int
) -> Tensor:
    """With attended values a, tokens x + sum gate (W_o a + b_o) have the queries, keys and values
    W x + b + sum gate (W W_o a + W b_o)."""
    T = x.shape[1]
    p = projections
    firsts = [first_token(level, eta) for level in range(len(gates))]
    gates = gates[: sum(first < T for first in firsts)]
    qkv = F.linear(x, p.qkv_weight, p.qkv_bias)
    weight, bias = p.qkv_weight @ p.out_weight, p.qkv_weight @ p.out_bias
    attended = prefix_levels(qkv, gates, weight, bias, p.num_heads, eta, radius)
    takes_part = torch.arange(T) >= torch.tensor(firsts[: len(gates)])[:, None]
    return F.linear(attended, p.out_weight) + (gates @ takes_part.to(x.dtype))[:, None] * p.out_bias


def _cell_means(x: Tensor, size: int) -> Tensor:
    """`[B, T, D] -> [B, C, D]`; the last cell may be short."""
    T = x.shape[1]
    sums = F.pad(x, (0, 0, 0, -T % size)).unflatten(1, (-1, size)).sum(2)
    counts = (T - size * torch.arange(sums.shape[1], device=x.device)).clamp(max=size)
    return sums / counts[:, None]


def _causal_update(
    x: Tensor, projections: Projections, level: int, eta: int, radius: int
) -> Tensor:
    T, size = x.shape[1], eta**level
    first = first_token(level, eta)
    if first >= T:
        return torch.zeros_like(x)
    # [B, C, size, D]: padding at the end is later than every token and so never seen.
    padded = F.pad(x, (0, 0, 0, -T % size)).unflatten(1, (-1, size))
    position = torch.arange(1, size + 1, device=x.device, dtype=x.dtype)
    prefix = padded.cumsum(2) / position[:, None]
    C = prefix.shape[1]
    q, k, v = (p.unflatten(2, (C, size)) for p in projections.heads(prefix.flatten(1, 2)))
    own = (q * k).sum(-1, keepdim=True)  # [B, H, C, size, 1]
    # A complete cell's mean is its last prefix.
    left = min(radius, C - 1)
    k_near = windows(k[..., -1, :], left, 0)[..., :left]  # [B, H, C, K, left]
    v_near = windows(v[..., -1, :], left, 0)[..., :left]
    cell = torch.arange(C, device=x.device)[:, None] + torch.arange(left, device=x.device)
    near = (q @ k_near).masked_fill((cell < left)[:, None], -torch.inf)
    weights = (torch.cat([near, own], dim=-1) / q.shape[-1] ** 0.5).softmax(-1)
    attended = weights[..., :-1] @ v_near.mT + weights[..., -1:] * v
    update = projections.merge(attended.flatten(2, 3))[:, :T]
    takes_part = torch.arange(T, device=x.device) >= first
    return update * takes_part[:, None]
