"""Spiderweb's causal levels with what is carried from one to the next, differentiated by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from mixbench.ops.cpu.compiling import parallel_for
from mixbench.ops.cpu.prefix_kernel import prefix_attention_kernel
from mixbench.ops.precision import at_least_float32


def first_token(level: int, eta: int) -> int:
    """The first token that takes part in a level."""
    return 0 if level == 0 else eta ** (level - 1)


@at_least_float32
def prefix_levels(
    qkv: Tensor, gates: Tensor, weight: Tensor, bias: Tensor, num_heads: int, eta: int, radius: int
) -> Tensor:
    """The causal levels' attended values, each times its gate, added up: `[B, T, D]`.

    At level l a token of a cell of `eta^l` asks with the mean of its cell's queries up to itself,
    and sees the same means of keys and values, and those of the `radius` complete cells before.

    Args:
        qkv: Queries, keys and values of the tokens `[B, T, 3 D]`, each of them heads side by side.
        gates: One weight a level `[L + 1]`; every level has tokens that take part.
        weight: `[3 D, D]`: what attended values add to queries, keys and values of the next level.
        bias: `[3 D]`: what is added to them besides, at tokens that take part.
        num_heads: Heads H.
        eta: Growth of the cells from level to level.
        radius: Cells seen before the own one.
    """
    return torch.ops.mixbench.prefix_levels(qkv, gates, weight, bias, num_heads, eta, radius)[0]


@torch.library.custom_op("mixbench::prefix_levels", mutates_args=(), device_types="cpu")
def _prefix_levels(
    qkv: Tensor, gates: Tensor, weight: Tensor, bias: Tensor, num_heads: int, eta: int, radius: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Beside the sum what its gradient needs: attended values of each level, `qkv` of the last."""
    total, attended, last = _empty_levels(qkv, gates, weight, bias, num_heads, eta, radius)
    total.zero_(), last.copy_(qkv)
    for level, gate in enumerate(gates.tolist()):
        if level > 0:
            before = gates[level - 1].item()
            _to_next_level(last, attended[level - 1], before, weight, bias, level - 1, eta)
        attended[level, :, : first_token(level, eta)] = 0
        _run_level((num_heads, level, eta, radius), last, attended[level])
        total.add_(attended[level], alpha=gate)
    return total, attended, last


@_prefix_levels.register_fake
def _empty_levels(
    qkv: Tensor, gates: Tensor, weight: Tensor, bias: Tensor, num_heads: int, eta: int, radius: int
) -> tuple[Tensor, Tensor, Tensor]:
    B, T, D = *qkv.shape[:2], weight.shape[1]
    return qkv.new_empty(B, T, D), qkv.new_empty(len(gates), B, T, D), qkv.new_empty(qkv.shape)


@torch.library.custom_op("mixbench::prefix_levels_backward", mutates_args=(), device_types="cpu")
def _prefix_gradients(
    attended: Tensor,
    last: Tensor,
    gates: Tensor,
    weight: Tensor,
    bias: Tensor,
    d_total: Tensor,
    num_heads: int,
    eta: int,
    radius: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_qkv, d_weight, d_bias = (torch.zeros_like(x) for x in (last, weight, bias))
    d_gates = []
    qkv = last.clone()
    for level, gate in reversed(list(enumerate(gates.tolist()))):
        new, d_new, d_gate = attended[level], d_total, 0.0
        if level + 1 < len(gates):
            # Back to this level's: to keep one of each would cost more in fresh memory.
            _to_next_level(qkv, new, -gate, weight, bias, level, eta)
            first = first_token(level, eta)
            d_rows = _rows(d_qkv, first)
            d_shift = d_qkv[:, first:].sum((0, 1))
            d_gate += float(d_shift @ bias)
            d_bias.add_(d_shift, alpha=gate)
            d_weight.addmm_(d_rows.T, _rows(new, first), alpha=gate)
            d_new = d_total.clone()
            _rows(d_new, first).addmm_(d_rows, weight)
        d_gates.append(d_gate + float(torch.dot(new.flatten(), d_new.flatten())))
        at = (num_heads, level, eta, radius)
        _run_level(at, qkv, d_new, (gate, d_qkv))
    return d_qkv, gates.new_tensor(d_gates[::-1]), d_weight, d_bias


@_prefix_gradients.register_fake
def _(
    attended: Tensor, last: Tensor, gates: Tensor, weight: Tensor, bias: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_qkv, d_gates, d_weight, d_bias = (torch.empty_like(x) for x in (last, gates, weight, bias))
    return d_qkv, d_gates, d_weight, d_bias


def _to_next_level(
    qkv: Tensor, new: Tensor, gate: float, weight: Tensor, bias: Tensor, level: int, eta: int
) -> None:
    """Add what a level's attended values do to `qkv`; with minus the gate, take it off again."""
    first = first_token(level, eta)
    _rows(qkv, first).addmm_(_rows(new, first), weight.T, alpha=gate)
    qkv[:, first:].add_(bias, alpha=gate)


def _rows(x: Tensor, first: int) -> Tensor:
    """`[B, T, width]` as a matrix; of one sequence only the tokens that take part."""
    return x[0, first:] if len(x) == 1 else x.flatten(0, 1)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    _, gates, weight, bias, *ctx.sizes = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[1:], gates, weight, bias)


def _backward(ctx: Any, d_total: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if d_total is None:
        return (None,) * 7
    d_total = d_total.contiguous()
    return *_prefix_gradients(*ctx.saved_tensors, d_total, *ctx.sizes), None, None, None


_prefix_levels.register_autograd(_backward, setup_context=_keep)


@register_flop_formula(torch.ops.mixbench.prefix_levels)
def _flops(
    qkv: Any, gates: Any, weight: Any, bias: Any, num_heads: int, eta: int, radius: int,
    *_: Any, **__: Any,
) -> int:  # fmt: skip
    """From shapes: scores and weighted values of the cells seen, and a product between levels."""
    (B, T, _three), D, n = qkv, weight[1], gates[0]
    tokens = sum(T - first_token(level, eta) for level in range(n))
    return B * (tokens * (radius + 1) * 4 * D + (n - 1) * T * 6 * D * D)


def _run_level(
    at: tuple[int, int, int, int],
    qkv: Tensor,
    out: Tensor,
    backward: tuple[float, Tensor] | None = None,
) -> None:
    """The kernel on one level's `qkv` `[B, T, 3 D]`: into `out` `[B, T, D]`.

    Or backward, with a factor and what to add the gradient of `qkv` to: from that of `out`, times
    the factor.
    """
    num_heads, level, eta, radius = at
    B, T, D = out.shape
    K = D // num_heads
    kernel = prefix_attention_kernel(K)
    size, first = min(eta**level, T), first_token(level, eta)
    factor, d_qkv = backward or (1.0, out)
    rows, out_rows, d_rows = (x.detach().view(-1, K).numpy() for x in (qkv, out, d_qkv))

    def share(begin: int, end: int) -> None:
        arguments = (T, num_heads, size, min(radius, T), first)
        kernel(begin, end, *arguments, rows, backward is not None, factor, out_rows, d_rows)

    parallel_for(share, B)
