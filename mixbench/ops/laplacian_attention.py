"""Attention over minus an L1 distance of bounded latencies ("first-spike" Laplacian attention).

Axes: B batch, H heads, T time, S key time, K key width, V value width.

`logit[i, j] = -sum_c |sigmoid(q[i, c]) - sigmoid(k[j, c])| / sigma_h`; softmax over j. A published
relative is EcoTransformer, arXiv 2507.20096.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mixbench.ops.cpu.compiling import parallel_for
from mixbench.ops.cpu.distance_kernel import l1_distances, l1_gradients
from mixbench.ops.precision import at_least_float32


def naive_laplacian_logits(q: Tensor, k: Tensor, sigma: Tensor, causal: bool = False) -> Tensor:
    """The definition, by broadcasting through `[B, H, T, S, K]`.

    Args:
        q: Queries before the sigmoid `[B, H, T, K]`.
        k: Keys before the sigmoid `[B, H, S, K]`.
        sigma: Positive width of each head `[H]`.
        causal: Give later tokens a logit of minus infinity.

    Returns:
        Logits `[B, H, T, S]`.
    """
    difference = torch.sigmoid(q)[:, :, :, None] - torch.sigmoid(k)[:, :, None]
    return _scale(difference.abs().sum(-1), sigma, causal)


@at_least_float32
def laplacian_logits(q: Tensor, k: Tensor, sigma: Tensor, causal: bool = False) -> Tensor:
    """The same logits from a pairwise distance that keeps only `[B, H, T, S]`.

    Arguments and returns as in `naive_laplacian_logits`.
    """
    return _scale(l1_distance(torch.sigmoid(q), torch.sigmoid(k)), sigma, causal)


@at_least_float32
def laplacian_attention(
    q: Tensor, k: Tensor, v: Tensor, sigma: Tensor, causal: bool = False
) -> Tensor:
    """Values weighted by the softmax of the logits, `[B, H, T, V]`.

    At most two `[T, S]` buffers of a head are alive at a time, forward and backward: logits and
    weights, then weights and gradients.

    Args:
        q: Queries before the sigmoid `[B, H, T, K]`.
        k: Keys before the sigmoid `[B, H, S, K]`.
        v: Values `[B, H, S, V]`.
        sigma: Positive width of each head `[H]`.
        causal: Attend to earlier tokens and the own one only.
    """
    return _Attention.apply(torch.sigmoid(q), torch.sigmoid(k), v, sigma, causal)


def l1_distance(q: Tensor, k: Tensor) -> Tensor:
    """`sum_c |q[i, c] - k[j, c]|`, `[..., T, K]` and `[..., S, K]` to `[..., T, S]`.

    On the CPU a compiled kernel (`mixbench.ops.cpu.distance_kernel`), elsewhere `torch.cdist`.
    """
    return torch.ops.mixbench.l1_distance(q, k)


@torch.library.custom_op("mixbench::l1_distance", mutates_args=())
def _l1_distance(q: Tensor, k: Tensor) -> Tensor:
    if q.device.type != "cpu":
        return torch.cdist(q, k, p=1.0)
    out = _between(q, k)
    arrays = [x.detach().contiguous().flatten(0, -3).numpy() for x in (q, k, out)]
    parallel_for(lambda first, last: l1_distances()(first, last, *arrays), len(arrays[0]))
    return out


@_l1_distance.register_fake
def _between(q: Tensor, k: Tensor) -> Tensor:
    return q.new_empty(*q.shape[:-1], k.shape[-2])


@torch.library.custom_op("mixbench::l1_distance_backward", mutates_args=())
def _l1_gradients(q: Tensor, k: Tensor, d_out: Tensor) -> tuple[Tensor, Tensor]:
    if q.device.type != "cpu":
        dist = torch.cdist(q, k, p=1.0)
        d_q = torch.ops.aten._cdist_backward(d_out.contiguous(), q, k, 1.0, dist)
        d_k = torch.ops.aten._cdist_backward(d_out.mT.contiguous(), k, q, 1.0, dist.mT.contiguous())
        return d_q, d_k
    d_q, d_k = _like_both(q, k, d_out)
    arrays = [x.detach().contiguous().flatten(0, -3).numpy() for x in (q, k, d_out, d_q, d_k)]
    parallel_for(lambda first, last: l1_gradients()(first, last, *arrays), len(arrays[0]))
    return d_q, d_k


@_l1_gradients.register_fake
def _like_both(q: Tensor, k: Tensor, d_out: Tensor) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


_l1_distance.register_autograd(
    lambda ctx, d_out: _l1_gradients(*ctx.saved_tensors, d_out),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class _Attention(torch.autograd.Function):
    """`laplacian_attention` from latencies, with gradients by hand."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sigma: Tensor, causal: bool) -> Tensor:
        logits = _l1_distance(q, k).mul_(-1 / sigma[:, None, None])
        if causal:
            logits.masked_fill_(_later(logits), -torch.inf)
        weights = logits.softmax(-1)
        out = weights @ v
        ctx.save_for_backward(q, k, v, sigma, weights, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, sigma, weights, out = ctx.saved_tensors
        d_v = weights.mT @ d_out
        # A row's gradient less its mean under the weights, `d_out . out`; then over the distances.
        d_distance = (d_out @ v.mT).sub_((d_out * out).sum(-1, keepdim=True)).mul_(weights)
        d_distance.mul_(-1 / sigma[:, None, None])
        d_q, d_k = _l1_gradients(q, k, d_distance)
        # The distance is homogeneous in its arguments, and does not see a common shift of them:
        # its product with its gradient is that of the arguments with theirs.
        over_pairs = ((q - 0.5) * d_q).sum((0, 2, 3)) + ((k - 0.5) * d_k).sum((0, 2, 3))
        return d_q, d_k, d_v, -over_pairs / sigma, None


def _scale(distance: Tensor, sigma: Tensor, causal: bool) -> Tensor:
    logits = -distance / sigma[:, None, None]
    return logits.masked_fill(_later(logits), -torch.inf) if causal else logits


def _later(logits: Tensor) -> Tensor:
    """True where a key is later than its query, `[T, S]`."""
    shape = logits.shape[-2:]
    return torch.ones(shape, dtype=torch.bool, device=logits.device).triu(1)
