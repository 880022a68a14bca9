"""What stands around a mixer: RMS norm and the gated unit of SwiGLU.

On the CPU compiled kernels; elsewhere, in 16-bit numbers, and under `torch.compile`, which fuses
them itself, PyTorch's own composition.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mixbench.ops.compiling import share_out
from mixbench.ops.layer_kernels import ROWS_A_BLOCK, rms_norm_kernel, silu_product_kernel


def naive_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x w / sqrt(mean(x^2) + eps)` over the last axis, `[..., D]` (arXiv 1910.07467)."""
    return F.rms_norm(x, weight.shape, weight, eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same; arguments and returns as in `naive_rms_norm`. Differentiable once."""
    if not _kernels_take(x, weight):
        return naive_rms_norm(x, weight, eps)
    return torch.ops.mixbench.rms_norm(x, weight, eps)[0]


def naive_silu_product(x: Tensor) -> Tensor:
    """`silu(gate) up` of `[..., 2 W]` with the gates first, to `[..., W]` (arXiv 2002.05202)."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def silu_product(x: Tensor) -> Tensor:
    """The same; arguments and returns as in `naive_silu_product`. Differentiable once."""
    if not _kernels_take(x):
        return naive_silu_product(x)
    return torch.ops.mixbench.silu_product(x)


def _kernels_take(*tensors: Tensor) -> bool:
    same = len({(x.device.type, x.dtype) for x in tensors}) == 1
    x = tensors[0]
    known = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    return same and known and not torch.compiler.is_compiling()


@torch.library.custom_op("mixbench::rms_norm", mutates_args=(), device_types="cpu")
def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The normalised rows `[..., D]`, and by what each was multiplied `[...]`."""
    y, r = _like_norm(x, weight, eps)
    nothing = x.new_empty(0, len(weight))
    _run_norm(eps, x, weight, False, y, r, nothing, nothing)
    return y, r


@_rms_norm.register_fake
def _like_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1])


@torch.library.custom_op("mixbench::rms_norm_backward", mutates_args=(), device_types="cpu")
def _rms_norm_gradients(d_y: Tensor, x: Tensor, weight: Tensor, r: Tensor) -> list[Tensor]:
    d_x = x.new_empty(x.shape)
    d_w = x.new_empty(-(-r.numel() // ROWS_A_BLOCK), len(weight))
    _run_norm(0.0, x, weight, True, d_y, r, d_x, d_w)
    return [d_x, d_w.sum(0)]


@_rms_norm_gradients.register_fake
def _(d_y: Tensor, x: Tensor, weight: Tensor, r: Tensor) -> list[Tensor]:
    return [x.new_empty(x.shape), torch.empty_like(weight)]


def _run_norm(eps: float, x: Tensor, weight: Tensor, backward: bool, *arrays: Tensor) -> None:
    y, r, d_x, d_w = arrays
    D = len(weight)
    rows = [t.detach().contiguous().view(-1, D).numpy() for t in (x, weight, y, d_x, d_w)]
    kernel, scales = rms_norm_kernel(D), r.detach().view(-1).numpy()

    def share(begin: int, end: int) -> None:
        kernel(begin, end, eps, rows[0], rows[1], backward, rows[2], scales, rows[3], rows[4])

    share_out(share, -(-len(scales) // ROWS_A_BLOCK))


def _keep_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(inputs[0], inputs[1], output[1])


def _norm_backward(ctx: Any, d_y: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if d_y is None:
        return None, None, None
    return *_rms_norm_gradients(d_y, *ctx.saved_tensors), None


_rms_norm.register_autograd(_norm_backward, setup_context=_keep_norm)


@torch.library.custom_op("mixbench::silu_product", mutates_args=(), device_types="cpu")
def _silu_product(x: Tensor) -> Tensor:
    y = _half(x)
    _run_product(x, False, y, y)
    return y


@_silu_product.register_fake
def _half(x: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], x.shape[-1] // 2)


@torch.library.custom_op("mixbench::silu_product_backward", mutates_args=(), device_types="cpu")
def _silu_product_gradient(d_y: Tensor, x: Tensor) -> Tensor:
    d_x = x.new_empty(x.shape)
    _run_product(x, True, d_y, d_x)
    return d_x


@_silu_product_gradient.register_fake
def _(d_y: Tensor, x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _run_product(x: Tensor, backward: bool, y: Tensor, d_x: Tensor) -> None:
    width = x.shape[-1] // 2
    kernel = silu_product_kernel(width)
    rows, out, gradient = (t.detach().contiguous().view(-1, width).numpy() for t in (x, y, d_x))
    share_out(lambda begin, end: kernel(begin, end, rows, backward, out, gradient), len(out))


_silu_product.register_autograd(
    lambda ctx, d_y: _silu_product_gradient(d_y, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
