"""What stands around a mixer: RMS norm and the gated unit of SwiGLU.

On the CPU compiled kernels; elsewhere, in 16-bit numbers, and under `torch.compile`, which fuses
them itself, PyTorch's own composition.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from mixbench.ops.cpu.compiling import parallel_for
from mixbench.ops.cpu.layer_kernels import ROWS_A_BLOCK, rms_norm_kernel, silu_product_kernel


def naive_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x w / sqrt(mean(x^2) + eps)` over the last axis, `[..., D]` (arXiv 1910.07467)."""
    return F.rms_norm(x, weight.shape, weight, eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same; arguments and returns as in `naive_rms_norm`. Differentiable once."""
    if not _kernels_take(x, weight):
        return naive_rms_norm(x, weight, eps)
    return _RMSNorm.apply(x, weight, eps)


def naive_silu_product(x: Tensor) -> Tensor:
    """`silu(gate) up` of `[..., 2 W]` with the gates first, to `[..., W]` (arXiv 2002.05202)."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def silu_product(x: Tensor) -> Tensor:
    """The same; arguments and returns as in `naive_silu_product`. Differentiable once."""
    if not _kernels_take(x):
        return naive_silu_product(x)
    return _SiluProduct.apply(x)


def _kernels_take(*tensors: Tensor) -> bool:
    same = len({(x.device.type, x.dtype) for x in tensors}) == 1
    x = tensors[0]
    known = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    return same and known and not torch.compiler.is_compiling()


class _RMSNorm(torch.autograd.Function):
    """`rms_norm`; keeps by what each row was multiplied."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        y, r = torch.empty_like(x), x.new_empty(x.shape[:-1])
        nothing = x.new_empty(0, len(weight))
        _run_norm(eps, x, weight, False, y, r, nothing, nothing)
        ctx.save_for_backward(x, weight, r)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, r = ctx.saved_tensors
        d_x = torch.empty_like(x)
        d_w = x.new_empty(-(-r.numel() // ROWS_A_BLOCK), len(weight))
        _run_norm(0.0, x, weight, True, d_y.contiguous(), r, d_x, d_w)
        return d_x, d_w.sum(0), None


def _run_norm(eps: float, x: Tensor, weight: Tensor, backward: bool, *arrays: Tensor) -> None:
    y, r, d_x, d_w = arrays
    D = len(weight)
    rows = [t.detach().view(-1, D).numpy() for t in (x, weight, y, d_x, d_w)]
    kernel, scales = rms_norm_kernel(D), r.detach().view(-1).numpy()

    def share(begin: int, end: int) -> None:
        kernel(begin, end, eps, rows[0], rows[1], backward, rows[2], scales, rows[3], rows[4])

    parallel_for(share, -(-len(scales) // ROWS_A_BLOCK))


class _SiluProduct(torch.autograd.Function):
    """`silu_product`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        y = x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
        _run_product(x, False, y, y)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        d_x = torch.empty_like(x)
        _run_product(x, True, d_y.contiguous(), d_x)
        return d_x


def _run_product(x: Tensor, backward: bool, y: Tensor, d_x: Tensor) -> None:
    width = x.shape[-1] // 2
    kernel = silu_product_kernel(width)
    rows, out, gradient = (t.detach().view(-1, width).numpy() for t in (x, y, d_x))
    parallel_for(lambda begin, end: kernel(begin, end, rows, backward, out, gradient), len(out))
