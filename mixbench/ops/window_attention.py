"""Attention within a sliding window: each position sees `left` before it and `right` after it.

Axes: B batch, H heads, T time, K key width, V value width, W = left + 1 + right window positions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from mixbench.ops.precision import at_least_float32


def naive_window_attention(q: Tensor, k: Tensor, v: Tensor, left: int, right: int) -> Tensor:
    """The definition: dense attention, scores `q . k / sqrt(K)`, masked outside the window.

    Args:
        q: Queries `[B, H, T, K]`.
        k: Keys `[B, H, T, K]`.
        v: Values `[B, H, T, V]`.
        left: Positions seen before the own one.
        right: Positions seen after it.

    Returns:
        Outputs `[B, H, T, V]`.
    """
    t = torch.arange(q.shape[-2], device=q.device)
    offset = t - t[:, None]
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill((offset < -left) | (offset > right), -torch.inf).softmax(-1) @ v


@at_least_float32
def window_attention(q: Tensor, k: Tensor, v: Tensor, left: int, right: int) -> Tensor:
    """The same outputs in O(T W) time and memory.

    Arguments and returns as in `naive_window_attention`.
    """
    T = q.shape[-2]
    if T == 0:
        return torch.zeros_like(v)
    # A window wider than the sequence sees no more than the sequence.
    left, right = min(left, T - 1), min(right, T - 1)
    weights = window_weights(q, k, left, right)
    return (weights[..., None, :] @ windows(v, left, right).mT).squeeze(-2)


def window_weights(q: Tensor, k: Tensor, left: int, right: int) -> Tensor:
    """The softmax weights `[B, H, T, W]` alone; zero outside the sequence."""
    T = q.shape[-2]
    left, right = min(left, T - 1), min(right, T - 1)
    scores = (q[..., None, :] @ windows(k, left, right)).squeeze(-2) / q.shape[-1] ** 0.5
    at = torch.arange(T, device=q.device)[:, None] + torch.arange(left + 1 + right, device=q.device)
    inside = (at >= left) & (at < left + T)
    return scores.masked_fill(~inside, -torch.inf).softmax(-1)


def windows(x: Tensor, left: int, right: int) -> Tensor:
    """What each position's window holds, `[B, H, T, K] -> [B, H, T, K, W]`; zeros off the ends."""
    return F.pad(x, (0, 0, left, right)).unfold(-2, left + 1 + right, 1)
