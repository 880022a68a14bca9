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
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from mixbench.ops.compiling import share_out
from mixbench.ops.precision import at_least_float32
from mixbench.ops.prefix_kernel import prefix_attention_kernel
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
    kernel (`mixbench.ops.prefix_kernel`) takes their prefix means and attends.

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


def _first_token(level: int, eta: int) -> int:
    """The first token that takes part in a level."""
    return 0 if level == 0 else eta ** (level - 1)


def _carried_update(
    x: Tensor, projections: Projections, gates: Tensor, eta: int, radius: int
) -> Tensor:
    """With attended values a, tokens x + sum gate (W_o a + b_o) have the queries, keys and values
    W x + b + sum gate (W W_o a + W b_o)."""
    T = x.shape[1]
    p = projections
    firsts = [_first_token(level, eta) for level in range(len(gates))]
    gates = gates[: sum(first < T for first in firsts)]
    qkv = F.linear(x, p.qkv_weight, p.qkv_bias)
    weight, bias = p.qkv_weight @ p.out_weight, p.qkv_weight @ p.out_bias
    attended = prefix_levels(qkv, gates, weight, bias, p.num_heads, eta, radius)
    takes_part = torch.arange(T) >= torch.tensor(firsts[: len(gates)])[:, None]
    return F.linear(attended, p.out_weight) + (gates @ takes_part.to(x.dtype))[:, None] * p.out_bias


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
        attended[level, :, : _first_token(level, eta)] = 0
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
            first = _first_token(level, eta)
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
    first = _first_token(level, eta)
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
    tokens = sum(T - _first_token(level, eta) for level in range(n))
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
    size, first = min(eta**level, T), _first_token(level, eta)
    factor, d_qkv = backward or (1.0, out)
    rows, out_rows, d_rows = (x.detach().view(-1, K).numpy() for x in (qkv, out, d_qkv))

    def share(begin: int, end: int) -> None:
        arguments = (T, num_heads, size, min(radius, T), first)
        kernel(begin, end, *arguments, rows, backward is not None, factor, out_rows, d_rows)

    share_out(share, B)


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
    first = _first_token(level, eta)
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
