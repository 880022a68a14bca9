"""The lattice rule: gated-delta-rule cells on a two-dimensional grid, written and read by address.

Axes: B batch, T time, H heads, K key width, V value width.

A token writes to the 3 x 3 cells around its rounded write address and reads the 3 x 3 around its
read address, with quadratic B-spline weights. A write with weight w is a delta-rule step with gates
`alpha^w` and `beta w`; a read is the weighted sum of `S_cell q` after this token's write. Cells
that nobody wrote to hold nothing and read as zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mixbench.ops.cells import delta_cells, plan_cells
from mixbench.ops.lattice_lists import lists_lattice_rule
from mixbench.ops.precision import at_least_float32
from mixbench.ops.spline import ReadMode, Weights, read_neighbourhood, spline_neighbourhood


def naive_lattice_rule(
    write_address: Tensor,
    read_address: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor,
    beta: Tensor,
    weights: Weights = "unit",
    read_mode: ReadMode = "all",
) -> tuple[Tensor, Tensor]:
    """The definition: a dictionary of cells, one token after another.

    Args:
        write_address: Where each token writes `[B, T, 2]`, shared by the heads.
        read_address: Where each token reads `[B, T, 2]`.
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, T, H, K]`, of unit norm.
        v: Values `[B, T, H, V]`.
        alpha: Retention gates `[B, T, H]` in (0, 1].
        beta: Write gates `[B, T, H]` in [0, 1].
        weights: Normalisation of the neighbourhood, see `spline_neighbourhood`.
        read_mode: `all` nine cells, or `nearest`: the centre cell with weight one.

    Returns:
        Outputs `[B, T, H, V]` and the number of distinct cells written in each sequence `[B]`.
    """
    B, T, H, K = q.shape
    V = v.shape[-1]
    write_cells, write_w = spline_neighbourhood(write_address, weights)
    read_cells, read_w = read_neighbourhood(read_address, weights, read_mode)
    out = []
    n_cells = []
    for b in range(B):
        cells: dict[tuple[int, int], Tensor] = {}
        for t in range(T):
            for n, (x, y) in enumerate(write_cells[b, t].tolist()):
                w = write_w[b, t, n]
                S = cells.get((int(x), int(y)), v.new_zeros(H, V, K))
                S = alpha[b, t, :, None, None] ** w * S
                error = v[b, t] - torch.einsum("hvk,hk->hv", S, k[b, t])
                update = (beta[b, t] * w)[:, None] * error
                cells[int(x), int(y)] = S + torch.einsum("hv,hk->hvk", update, k[b, t])
            o = v.new_zeros(H, V)
            for n, (x, y) in enumerate(read_cells[b, t].tolist()):
                if (int(x), int(y)) in cells:
                    S = cells[int(x), int(y)]
                    o = o + read_w[b, t, n] * torch.einsum("hvk,hk->hv", S, q[b, t])
            out.append(o)
        n_cells.append(len(cells))
    outputs = torch.stack(out).reshape(B, T, H, V) if out else v.new_zeros(B, T, H, V)
    return outputs, torch.tensor(n_cells, device=v.device)


@at_least_float32
def lattice_rule(
    write_address: Tensor,
    read_address: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor,
    beta: Tensor,
    weights: Weights = "unit",
    read_mode: ReadMode = "all",
) -> tuple[Tensor, Tensor]:
    """The same values, fast: on the CPU a compiled kernel, elsewhere `lists_lattice_rule`.

    Both work on every cell's own list of writes and reads, are exact, and take memory linear in T;
    see `mixbench.ops.cpu.cell_kernel`. Arguments and returns as in `naive_lattice_rule`.
    """
    if q.device.type != "cpu":
        return lists_lattice_rule(
            write_address, read_address, q, k, v, alpha, beta, weights, read_mode
        )
    write_cells, write_w = spline_neighbourhood(write_address, weights)
    read_cells, read_w = read_neighbourhood(read_address, weights, read_mode)
    *plan, n_cells = plan_cells(write_cells, read_cells)
    content = (q, k, v, alpha.log(), beta, write_w.to(v.dtype), read_w.to(v.dtype))
    initial_state = v.new_empty(0, *q.shape[2:], v.shape[-1])
    return delta_cells(*plan, *content, initial_state, False)[0], n_cells
