"""Causal depthwise convolution of a few taps.

Axes: B batch, T time, D channels, W taps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def naive_short_convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The definition by PyTorch's grouped convolution.

    Args:
        x: `[B, T, D]`.
        weight: `[D, W]`; the last tap meets the token itself, the one before it the previous token.
        bias: `[D]`.

    Returns:
        `[B, T, D]`.
    """
    D, W = weight.shape
    return F.conv1d(F.pad(x.mT, (W - 1, 0)), weight[:, None], bias, groups=D).mT


def short_convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same as a shifted multiply-add a tap, in place, over contiguous `[B, T, D]`.

    A grouped convolution would transpose, and recording every tap would copy.

    Arguments and returns as in `naive_short_convolution`. Differentiable once.
    """
    return _ShiftedAdds.apply(*_same_dtype(x, weight, bias))


class _ShiftedAdds(torch.autograd.Function):
    """`short_convolution`, with gradients by hand."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        T, W = x.shape[1], weight.shape[1]
        out = torch.addcmul(bias, x, weight[:, -1])
        for shift in range(1, min(W, T)):
            out[:, shift:].addcmul_(x[:, : T - shift], weight[:, -1 - shift])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        T, W = x.shape[1], weight.shape[1]
        d_x = d_out * weight[:, -1]
        d_weight = torch.zeros_like(weight)
        d_weight[:, -1] = (d_out * x).sum((0, 1))
        for shift in range(1, min(W, T)):
            later = d_out[:, shift:]
            d_x[:, : T - shift].addcmul_(later, weight[:, -1 - shift])
            d_weight[:, -1 - shift] = (later * x[:, : T - shift]).sum((0, 1))
        return d_x, d_weight, d_out.sum((0, 1))


def _same_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Under autocast a layer may get narrower inputs than its parameters are."""
    dtype = max((x.dtype for x in tensors), key=lambda dtype: dtype.itemsize)
    return tuple(x.to(dtype) for x in tensors)
