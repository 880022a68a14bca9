"""Attention over minus an L1 distance of bounded latencies ("first-spike" Laplacian attention).

Axes: B batch, H heads, T time, K key width, V value width.

`logit[i, j] = -sum_c |sigmoid(q[i, c]) - sigmoid(k[j, c])| / sigma_h`; softmax over j. A published
relative is EcoTransformer, arXiv 2507.20096.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mixbench.ops.precision import at_least_float32


def naive_laplacian_logits(q: Tensor, k: Tensor, sigma: Tensor, causal: bool = False) -> Tensor:
    """The definition, by broadcasting through `[B, H, T, T, K]`.

    Args:
        q: Queries before the sigmoid `[B, H, T, K]`.
        k: Keys before the sigmoid `[B, H, T, K]`.
        sigma: Positive width of each head `[H]`.
        causal: Give later tokens a logit of minus infinity.

    Returns:
        Logits `[B, H, T, T]`.
    """
    difference = torch.sigmoid(q)[:, :, :, None] - torch.sigmoid(k)[:, :, None]
    return _scale(difference.abs().sum(-1), sigma, causal)


@at_least_float32
def laplacian_logits(q: Tensor, k: Tensor, sigma: Tensor, causal: bool = False) -> Tensor:
    """The same logits from a pairwise distance that keeps only `[B, H, T, T]`.

    Arguments and returns as in `naive_laplacian_logits`.
    """
    return _scale(torch.cdist(torch.sigmoid(q), torch.sigmoid(k), p=1.0), sigma, causal)


def _scale(distance: Tensor, sigma: Tensor, causal: bool) -> Tensor:
    logits = -distance / sigma[:, None, None]
    if not causal:
        return logits
    T = logits.shape[-1]
    later = torch.ones(T, T, dtype=torch.bool, device=logits.device).triu(1)
    return logits.masked_fill(later, -torch.inf)
