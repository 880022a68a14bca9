"""Cells of gated delta-rule memory as PyTorch operators, on the CPU.

Axes: B batch, T time, H heads, K key width, V value width; W write and R read slots of a token.
`mixbench.ops.cpu.cell_kernel` has the algorithm. As registered operators these are seen by
`torch.compile` and by PyTorch's FLOP counter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from mixbench.ops.cpu import cell_plan
from mixbench.ops.cpu.cell_kernel import cell_kernel
from mixbench.ops.cpu.compiling import parallel_for


@torch.library.custom_op("mixbench::plan_cells", mutates_args=(), device_types="cpu")
def plan_cells(
    write_cells: Tensor, read_cells: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Which token meets which in which cell.

    Args:
        write_cells: Coordinates of the cells that tokens write to `[B, T, W, 2]`, whole numbers.
        read_cells: Coordinates of the cells that tokens read `[B, T, R, 2]`.

    Returns:
        The number of each sequence's first cell `[B + 1]`; where each cell's list of events starts
        `[B T (W + R) + 1]`; each event's token and slot `[B T (W + R)]`; and how many cells each
        sequence wrote to `[B]`.
    """
    plan = _empty_plan(write_cells, read_cells)
    first_cell, starts, tokens, slots, n_cells = (x.numpy() for x in plan)
    write, read = (x.long().contiguous().numpy() for x in (write_cells, read_cells))
    cell_plan.plan_cells(write, read, starts, tokens, slots, first_cell, n_cells)
    return plan


@plan_cells.register_fake
def _empty_plan(
    write_cells: Tensor, read_cells: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    B, T, W, _ = write_cells.shape
    events = B * T * (W + read_cells.shape[2])

    def whole(n: int) -> Tensor:
        return write_cells.new_zeros(n, dtype=torch.long)

    return whole(B + 1), whole(events + 1), whole(events), whole(events), whole(B)


@torch.library.custom_op("mixbench::delta_cells", mutates_args=(), device_types="cpu")
def delta_cells(
    first_cell: Tensor,
    starts: Tensor,
    tokens: Tensor,
    slots: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    beta: Tensor,
    w_write: Tensor,
    w_read: Tensor,
    initial_state: Tensor,
    return_state: bool,
) -> tuple[Tensor, Tensor]:
    """Outputs of cells that tokens write to and read, and the states they end with.

    Args:
        first_cell: With `starts`, `tokens` and `slots`: see `plan_cells`.
        starts: See there.
        tokens: See there.
        slots: See there.
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, T, H, K]`, of unit norm.
        v: Values `[B, T, H, V]`.
        log_alpha: Logarithms of the retention gates `[B, T, H]`.
        beta: Write gates `[B, T, H]`.
        w_write: Weights of the writes `[B, T, W]`.
        w_read: Weights of the reads `[B, T, R]`.
        initial_state: States that the cells start from `[cells, H, K, V]`, or `[0, H, K, V]`.
        return_state: Whether the states they end with are wanted.

    Returns:
        Outputs `[B, T, H, V]`, and states `[cells, H, K, V]`, or `[0, H, K, V]`.
    """
    plan, content = (first_cell, starts, tokens, slots), (q, k, v, log_alpha, beta, w_write, w_read)
    out = torch.zeros_like(v, memory_format=torch.contiguous_format)
    final_state = _final_state(first_cell, q, v, return_state)
    none, nothing = v.new_empty(0, v.shape[-1]), v.new_empty(0, 1)
    gradients = (none, none, none, none, none, *(nothing,) * 4, none)
    _run(plan, (*content, initial_state), False, (out, final_state), gradients)
    return out, final_state


@delta_cells.register_fake
def _(*args: Any) -> tuple[Tensor, Tensor]:
    first_cell, q, v, return_state = args[0], args[4], args[6], args[12]
    out = torch.empty_like(v, memory_format=torch.contiguous_format)
    return out, _final_state(first_cell, q, v, return_state)


@torch.library.custom_op("mixbench::delta_cells_backward", mutates_args=(), device_types="cpu")
def _gradients(
    d_out: Tensor,
    d_final_state: Tensor,
    first_cell: Tensor,
    starts: Tensor,
    tokens: Tensor,
    slots: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    beta: Tensor,
    w_write: Tensor,
    w_read: Tensor,
    initial_state: Tensor,
) -> list[Tensor]:
    inputs = (q, k, v, log_alpha, beta, w_write, w_read, initial_state)
    grads = [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in inputs]
    none = v.new_empty(0, v.shape[-1])
    _run(
        (first_cell, starts, tokens, slots),
        inputs,
        True,
        (none, none),
        (d_out, d_final_state, *grads),
    )
    return grads


@_gradients.register_fake
def _(*args: Tensor) -> list[Tensor]:
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in args[6:]]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:12])


def _backward(ctx: Any, d_out: Tensor, d_final_state: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _gradients(d_out, d_final_state, *ctx.saved_tensors)
    return None, None, None, None, *gradients, None


delta_cells.register_autograd(_backward, setup_context=_keep)


@register_flop_formula(torch.ops.mixbench.delta_cells)
def _flops(
    first_cell: Any,
    starts: Any,
    tokens: Any,
    slots: Any,
    q: Any,
    k: Any,
    v: Any,
    log_alpha: Any,
    beta: Any,
    w_write: Any,
    w_read: Any,
    *_: Any,
    **__: Any,
) -> int:
    """From shapes: the state times a vector in each read, that and an outer product in a write."""
    N, (W, R) = q[0] * q[1], (w_write[-1], w_read[-1])
    return N * (2 * W + R) * q[2] * 2 * q[3] * v[3]


def _final_state(first_cell: Tensor, q: Tensor, v: Tensor, return_state: bool) -> Tensor:
    cells = len(first_cell) - 1 if return_state else 0  # states are carried in one cell a sequence
    return v.new_zeros(cells, q.shape[2], q.shape[3], v.shape[3])


def _run(
    plan: tuple[Tensor, ...],
    inputs: tuple[Tensor, ...],
    backward: bool,
    outputs: tuple[Tensor, Tensor],
    gradients: tuple[Tensor, ...],
) -> None:
    """The kernel on all cells: `get_num_threads()` threads take a share of the sequences each."""
    first_cell, starts, tokens, slots = (x.numpy() for x in plan)
    q, k, v, log_alpha, beta, w_write, w_read, initial_state = map(_rows, inputs)
    run = cell_kernel(q.shape[1], v.shape[1])
    arguments = (starts, tokens, slots, q, k, v, log_alpha, beta, w_write, w_read, initial_state)
    results = (*map(_rows, outputs), *map(_rows, gradients))

    def share(first: int, last: int) -> None:
        run(int(first_cell[first]), int(first_cell[last]), *arguments, backward, *results)

    parallel_for(share, len(first_cell) - 1)


def _rows(x: Tensor) -> np.ndarray:
    """`[..., width] -> [rows, width]`; the same memory if contiguous."""
    return x.detach().contiguous().reshape(-1, x.shape[-1]).numpy()
