"""The lattice rule: gated-delta-rule cells on a two-dimensional grid, written and read by address.

Axes: B batch, T time, H heads, K key width, V value width.

A token writes to the 3 x 3 cells around its rounded write address and reads the 3 x 3 around its
read address, with quadratic B-spline weights. A write with weight w is a delta-rule step with gates
`alpha^w` and `beta w`; a read is the weighted sum of `S_cell q` after this token's write. Cells
that nobody wrote to hold nothing and read as zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mixbench.ops.precision import at_least_float32

Weights = Literal["unit", "partition"]
ReadMode = Literal["all", "nearest"]

# Up to this list length substitution runs over all cells at once; LAPACK takes the longer lists.
_SHORT = 8


def spline_neighbourhood(address: Tensor, weights: Weights = "unit") -> tuple[Tensor, Tensor]:
    """The 3 x 3 cells around an address and their weights.

    Per axis, at `f = address - round(address)`, the quadratic B-spline
    `((1/2 - f)^2 / 2, 3/4 - f^2, (1/2 + f)^2 / 2)`, which sums to one (`partition`), or the same
    scaled to unit L2 norm (`unit`: reading where one wrote returns the value with gain one).

    Args:
        address: Addresses `[..., 2]`.
        weights: `unit` or `partition`.

    Returns:
        Cell coordinates, whole numbers in the address's dtype, `[..., 9, 2]`, and weights
        `[..., 9]`. Gradients reach the address through the weights only.
    """
    centre = address.detach().round()
    f = address - centre
    spline = torch.stack([(0.5 - f) ** 2 / 2, 0.75 - f**2, (0.5 + f) ** 2 / 2], dim=-1)
    if weights == "unit":
        spline = spline / spline.norm(dim=-1, keepdim=True)
    w = spline[..., 0, :, None] * spline[..., 1, None, :]  # [..., 3, 3]
    step = torch.tensor([-1.0, 0.0, 1.0], dtype=address.dtype, device=address.device)
    offsets = torch.cartesian_prod(step, step)  # [9, 2], x outer as in w
    return centre[..., None, :] + offsets, w.flatten(-2)


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
    """The same values from every cell's own short list of writes, without any cell state.

    With a cell's writes in time order, `bw = beta w` and `G` the running sum of `w log(alpha)`, let
    `A[i, j] = bw_i (k_i . k_j) exp(G_i - G_j)` for j < i, and for its reads
    `P[r, j] = (q_r . k_j) exp(G_last(r) - G_j)` over the writes up to the read. Then the output is
    `sum_s R[t, s] v_s`, where R adds up `w_read (P (I + A)^-1)[r, j] bw_j` over the cells that
    token t reads and token s wrote. The content products `k . k` and `q . k` are shared by all
    cells, so what is done per cell is scalars only.

    Arguments and returns as in `naive_lattice_rule`.
    """
    B, T, H, _ = q.shape
    write_cells, write_w = spline_neighbourhood(write_address, weights)
    read_cells, read_w = read_neighbourhood(read_address, weights, read_mode)
    plan = _plan(write_cells, read_cells)
    if T == 0:
        return torch.zeros_like(v), plan.n_cells

    k_heads, q_heads = k.transpose(1, 2), q.transpose(1, 2)
    # [H, B * T * T]: heads first and one flat axis, so that a pair of tokens is one index.
    kk = (k_heads @ k_heads.transpose(-1, -2)).transpose(0, 1).reshape(H, -1)
    qk = (q_heads @ k_heads.transpose(-1, -2)).transpose(0, 1).reshape(H, -1)
    # [H, B * T * 9]: one event is a token at one of the cells it writes.
    log_decay = alpha.double().log().permute(2, 0, 1)[..., None] * write_w
    bw = beta.permute(2, 0, 1)[..., None] * write_w
    R = _CellPairs.apply(plan, kk, qk, log_decay.flatten(1), bw.flatten(1), read_w.flatten())
    R = R.reshape(H, B, T, T).transpose(0, 1)
    return (R @ v.transpose(1, 2)).transpose(1, 2), plan.n_cells


def read_neighbourhood(
    address: Tensor, weights: Weights, read_mode: ReadMode
) -> tuple[Tensor, Tensor]:
    """The cells that a read address reads and their weights, as in `spline_neighbourhood`."""
    if read_mode == "all":
        return spline_neighbourhood(address, weights)
    centre = address.detach().round()
    return centre[..., None, :], torch.ones_like(address[..., :1])


@dataclass(frozen=True)
class _Group:
    """n cells whose lists are padded to the same lengths: L writes, M reads.

    Where lists are short the cell axis is the contiguous one in memory, so that elementwise work
    runs over long stretches; the order of the axes in the code is the same for both.
    """

    short: bool
    write_event: Tensor  # [n, L] (b, t, neighbour) flat; any event where padded
    write_pair: Tensor  # [n, L, L] (b, t_i, t_j) flat
    read_event: Tensor  # [n, M]
    read_pair: Tensor  # [n, M, L] (b, t_r, t_j) flat
    is_write: Tensor  # [n, L] false where padded
    visible: Tensor  # [n, M] how many of its cell's writes a read sees; 0 where padded


@dataclass(frozen=True)
class _Plan:
    """Which token meets which in which cell."""

    n_cells: Tensor  # [B] distinct cells written
    groups: list[_Group]


@torch.no_grad()
def _plan(write_cells: Tensor, read_cells: Tensor) -> _Plan:
    B, T, W, _ = write_cells.shape
    R = read_cells.shape[2]
    device = write_cells.device
    if B * T == 0:
        return _Plan(torch.zeros(B, dtype=torch.long, device=device), [])
    write_id, read_id = (ids.flatten().contiguous() for ids in _cell_ids(write_cells, read_cells))

    # A token writes a cell at most once, so a stable sort by cell leaves each list in time order.
    sorted_id, write_order = write_id.sort(stable=True)
    cell_id, n_writes = torch.unique_consecutive(sorted_id, return_counts=True)
    write_start = n_writes.cumsum(0) - n_writes
    batch_of_cell = write_order[write_start] // (T * W)
    n_cells = torch.bincount(batch_of_cell, minlength=B)

    # How many writes of its cell, this token's own included, each read finds.
    cell = torch.searchsorted(cell_id, read_id).clamp(max=len(cell_id) - 1)
    written = cell_id[cell] == read_id
    time = torch.arange(T, device=device).repeat(B).repeat_interleave(R)
    write_key = (torch.arange(len(cell_id), device=device) * T).repeat_interleave(n_writes)
    write_key = write_key + (write_order // W) % T
    visible = torch.searchsorted(write_key, cell * T + time, right=True) - write_start[cell]
    read_order = (written & (visible > 0)).nonzero().squeeze(1)
    read_order = read_order[cell[read_order].sort(stable=True).indices]
    n_reads = torch.bincount(cell[read_order], minlength=len(cell_id))
    read_start = n_reads.cumsum(0) - n_reads

    # Unread cells have no part in the output; the others go by their two padded lengths.
    padded_writes, padded_reads = _padded_length(n_writes), _padded_length(n_reads)
    kind = torch.where(n_reads > 0, padded_writes * (T + 1) * 2 + padded_reads, -1)
    groups = []
    for key in torch.unique(kind[kind >= 0]).tolist():
        cells = (kind == key).nonzero()  # [n, 1]
        L, M = divmod(key, (T + 1) * 2)
        i, r = torch.arange(L, device=device), torch.arange(M, device=device)
        is_write, is_read = i < n_writes[cells], r < n_reads[cells]
        write = write_order[(write_start[cells] + i).clamp(max=len(write_order) - 1)]
        read = read_order[(read_start[cells] + r).clamp(max=len(read_order) - 1)]
        # Padded entries point at pairs of the same sequence; they are given no weight.
        write_time, read_time = write // W % T, read // R % T
        row = batch_of_cell[cells] * T
        write_pair = (row + write_time)[:, :, None] * T + write_time[:, None]
        read_pair = (row + read_time)[:, :, None] * T + write_time[:, None]
        seen = torch.where(is_read, visible[read], 0)
        tensors = (write, write_pair, read, read_pair, is_write, seen)
        short = L <= _SHORT
        groups.append(_Group(short, *(_cells_innermost(x) if short else x for x in tensors)))
    return _Plan(n_cells, groups)


def _cells_innermost(x: Tensor) -> Tensor:
    """The same tensor `[n, ...]`, stored with the cell axis innermost."""
    return x.movedim(0, -1).contiguous().movedim(-1, 0)


def _cell_ids(write_cells: Tensor, read_cells: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers that are equal where sequence and coordinates are, `[B, T, n]` each."""
    B = write_cells.shape[0]
    both = torch.cat([write_cells, read_cells], dim=2).long()
    both = both - both.amin(dim=(0, 1, 2))
    size = (both.amax(dim=(0, 1, 2)) + 1).tolist()
    if B * size[0] * size[1] >= 2**62:  # drifting addresses: number the coordinates that occur
        both = torch.stack(
            [torch.unique(both[..., axis], return_inverse=True)[1] for axis in (0, 1)], dim=-1
        )
        size = (both.amax(dim=(0, 1, 2)) + 1).tolist()
    b = torch.arange(B, device=both.device)[:, None, None]
    ids = (b * size[0] + both[..., 0]) * size[1] + both[..., 1]
    return ids[:, :, : write_cells.shape[2]], ids[:, :, write_cells.shape[2] :]


def _padded_length(n: Tensor) -> Tensor:
    """The smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... that is at least n."""
    length = torch.ones_like(n)
    power = 1
    while bool((length < n).any()):
        length = torch.where(length < n, 2 * power, length)
        length = torch.where(length < n, 3 * power, length)
        power *= 2
    return length


class _CellPairs(torch.autograd.Function):
    """R `[H, B * T * T]` of `lattice_rule`, all cells added up, with its gradient by hand.

    Takes the plan, content products `kk` and `qk` `[H, B * T * T]`, per write event `w log(alpha)`
    (float64: running sums of logs reach where a float32 has few digits left) and `beta w`
    `[H, events]`, and per read event its weight `[events]`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        plan: _Plan,
        kk: Tensor,
        qk: Tensor,
        log_decay: Tensor,
        bw: Tensor,
        w_read: Tensor,
    ) -> Tensor:
        R = torch.zeros_like(kk)
        saved: list[Tensor] = []
        for group in plan.groups:
            g = group.write_event
            bw_g = (bw[:, g] * group.is_write).to(kk.dtype)
            G = (log_decay[:, g] * group.is_write).cumsum(-1)
            L = G.shape[-1]
            below = torch.ones(L, L, dtype=torch.bool, device=G.device).tril(-1)
            decay = _decay(G, G, below, kk.dtype)
            kk_g = kk[:, group.write_pair].mul_(decay)
            A = bw_g[..., :, None] * kk_g
            last = (group.visible - 1).clamp(min=0).expand(len(G), -1, -1)
            seen = torch.arange(L, device=G.device) < group.visible[..., None]
            read_decay = _decay(G.gather(-1, last), G, seen, kk.dtype)
            P = qk[:, group.read_pair].mul_(read_decay)
            X = _solve_rows(P, A, group.short)
            w_g = w_read[group.read_event]
            _add_at(R, group.read_pair, X * bw_g[..., None, :] * w_g[..., None], group.short)
            saved += [bw_g, decay, kk_g, read_decay, P, X, w_g]
        ctx.plan = plan
        ctx.save_for_backward(log_decay, bw, w_read, *saved)
        return R

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor, Tensor, Tensor, Tensor]:
        log_decay, bw, w_read, *saved = ctx.saved_tensors
        dR = grads[0].contiguous()
        d_kk, d_qk = torch.zeros_like(dR), torch.zeros_like(dR)
        d_log_decay, d_bw = torch.zeros_like(log_decay), torch.zeros_like(bw)
        d_w_read = torch.zeros_like(w_read)
        for number, group in enumerate(ctx.plan.groups):
            bw_g, decay, kk_g, read_decay, P, X, w_g = saved[7 * number : 7 * number + 7]
            dY = dR[:, group.read_pair]
            YX = dY * X
            d_w = torch.einsum("hnrj,hnj->nr", YX, bw_g)
            d_bw_g = torch.einsum("hnrj,nr->hnj", YX, w_g)
            A = bw_g[..., :, None] * kk_g
            dP = _solve_rows(
                dY * w_g[..., None] * bw_g[..., None, :], A, group.short, transpose=True
            )
            # A takes part strictly below the diagonal only, where kk_g is not zero.
            dA = -_lower_product(X, dP, group.short)
            E = dA * A
            d_G = E.sum(-1) - E.sum(-2)
            d_bw_g += (dA * kk_g).sum(-1)
            _add_at(d_kk, group.write_pair, dA.mul_(bw_g[..., :, None]).mul_(decay), group.short)
            E = dP * P
            d_G -= E.sum(-2)
            last = (group.visible - 1).clamp(min=0).expand(len(d_G), -1, -1)
            d_G.scatter_add_(-1, last, E.sum(-1))
            _add_at(d_qk, group.read_pair, dP.mul_(read_decay), group.short)
            d_decay = d_G.double().flip(-1).cumsum(-1).flip(-1) * group.is_write
            _add_at(d_log_decay, group.write_event, d_decay, group.short)
            _add_at(d_bw, group.write_event, (d_bw_g * group.is_write).to(bw.dtype), group.short)
            _add_at(
                d_w_read[None], group.read_event, (d_w * (group.visible > 0))[None], group.short
            )
        return None, d_kk, d_qk, d_log_decay, d_bw, d_w_read


def _decay(to: Tensor, start: Tensor, where: Tensor, dtype: torch.dtype) -> Tensor:
    """`exp(to_i - start_j)` where asked, else 0. The differences are at most 0 there."""
    difference = (to[..., :, None] - start[..., None, :]).to(dtype)
    return difference.masked_fill_(~where, -torch.inf).exp_()


def _add_at(total: Tensor, index: Tensor, values: Tensor, short: bool) -> None:
    """`total[h, index] += values[h]` for every row h; values at repeated indices add up."""
    if short:  # flat in memory order, which costs no copy
        index, values = index.movedim(0, -1), values.movedim(1, -1)
    index = index.reshape(-1)
    for row, value in zip(total, values, strict=True):
        row.index_add_(0, index, value.reshape(-1))


def _solve_rows(P: Tensor, A: Tensor, short: bool, transpose: bool = False) -> Tensor:
    """X with `X (I + A) = P`, or with `X (I + A)^T = P`, for A strictly lower triangular.

    P and X are `[H, n, M, L]`, A is `[H, n, L, L]`.
    """
    L = A.shape[-1]
    if not short:  # the transposed views are what LAPACK wants, column by column
        A = A if transpose else A.mT
        return torch.linalg.solve_triangular(A, P.mT, upper=not transpose, unitriangular=True).mT
    X = P.clone()
    if transpose:
        for j in range(L - 1):
            column = A[..., j + 1 :, j].unsqueeze(-2)
            X[..., j + 1 :].addcmul_(X[..., j : j + 1], column, value=-1)
    else:
        for i in range(L - 1, 0, -1):
            row = A[..., i, :i].unsqueeze(-2)
            X[..., :i].addcmul_(X[..., i : i + 1], row, value=-1)
    return X


def _lower_product(X: Tensor, Y: Tensor, short: bool) -> Tensor:
    """`X^T Y` `[H, n, L, L]` of two `[H, n, M, L]`; strictly below the diagonal at least."""
    if not short:
        return X.mT @ Y
    L = X.shape[-1]
    out = torch.zeros_like(X[..., :1, :]).expand(-1, -1, L, -1).clone()
    for i in range(1, L):
        out[..., i, :i] = (X[..., i, None] * Y[..., :i]).sum(-2)
    return out
