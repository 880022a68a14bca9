"""The lattice rule over lists: each cell with the tokens that write or read it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import neg
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from mixbench.ops.precision import at_least_float32
from mixbench.ops.spline import ReadMode, Weights, read_neighbourhood, spline_neighbourhood
from mixbench.ops.triangular import pair_decay, unit_triangular_solve

# Shorter lists share a tile of this length: matrix products have a cost per matrix.
_TILE = 8


# Elements of one group's largest tensor: those of a group stay in the cache and are used again.
_CHUNK = 2**17


@at_least_float32
def lists_lattice_rule(
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
    """The same values in PyTorch's own operators, from lists of writes, without any cell state.

    With a cell's writes in time order, `bw = beta w` and `G` the running sum of `w log(alpha)`, let
    `C[i, j] = (k_i . k_j) exp(G_i - G_j)` for j < i, and for its reads
    `P[r, j] = (q_r . k_j) exp(G_last(r) - G_j)` over the writes up to the read. The delta rule's
    errors E solve `(I + C diag(bw)) E = V`, and read r gets `w_read (P (bw E))_r`. Cells
    with lists of similar lengths are padded and worked on together, a group at a time, and nothing
    of a group is kept, so that memory is linear in T unless one list's own square is larger.

    Arguments and returns as in `naive_lattice_rule`.
    """
    B, T, H, _ = q.shape
    write_cells, write_w = spline_neighbourhood(write_address, weights)
    read_cells, read_w = read_neighbourhood(read_address, weights, read_mode)
    plan = _plan(write_cells, read_cells, H)

    def rows(x: Tensor) -> Tensor:
        """[B, T, H, n] -> [H * B * T, n]."""
        return x.permute(2, 0, 1, 3).flatten(0, 2)

    # One event is a token, in one head, at one of the cells it writes, or reads: [H * B * T * 9].
    log_decay = (alpha.double().log()[..., None] * write_w[:, :, None]).permute(2, 0, 1, 3)
    bw = (beta[..., None] * write_w[:, :, None]).permute(2, 0, 1, 3).to(v.dtype)
    w_read = read_w.to(v.dtype).expand(H, *read_w.shape)
    events = (x.flatten() for x in (log_decay, bw, w_read))
    out = _Cells.apply(plan, rows(q), rows(k), rows(v), *events)
    return out.reshape(H, B, T, v.shape[-1]).permute(1, 2, 0, 3), plan.n_cells


@dataclass(frozen=True)
class _Group:
    """Cells whose lists are padded to the same lengths, `cells` of them side by side in each tile.

    A tile holds L writes and M reads of one head; N runs over heads, then tiles.
    """

    cells: int
    write: Tensor  # [N, L] write events (h, b, t, neighbour) flat; any event where padded
    write_row: Tensor  # [N, L] their tokens (h, b, t) flat
    read: Tensor  # [N, M]
    read_row: Tensor  # [N, M]
    is_write: Tensor  # [N, L] false where padded
    is_read: Tensor  # [N, M]
    last: Tensor  # [N, M] the last write in the tile that a read sees
    below: Tensor  # [L, L] 1 where j <= i and both are in the same cell, else 0


@dataclass(frozen=True)
class _Plan:
    """Which token meets which in which cell."""

    n_cells: Tensor  # [B] distinct cells written
    groups: list[_Group]


@torch.no_grad()
def _plan(write_cells: Tensor, read_cells: Tensor, heads: int) -> _Plan:
    B, T, W, _ = write_cells.shape
    R = read_cells.shape[2]
    device = write_cells.device
    if B * T == 0:
        return _Plan(torch.zeros(B, dtype=torch.long, device=device), [])

    def both(write: Tensor, read: Tensor) -> Tensor:
        """`[B * T, W]` and `[B * T, R]` side by side, in order of cells."""
        return torch.cat([write, read], dim=1).flatten()[order]

    # A stable sort by cell leaves each cell's events in time order, a token's write before its
    # read; a token writes, or reads, a cell at most once.
    ids, order = _cell_ids(write_cells, read_cells).flatten().sort(stable=True)
    cell = torch.unique_consecutive(ids, return_inverse=True)[1]
    n = B * T
    numbers = torch.arange(n * max(W, R), device=device)
    event = both(numbers[: n * W].view(n, W), numbers[: n * R].view(n, R))
    row = both(numbers[:n, None].expand(-1, W), numbers[:n, None].expand(-1, R))
    yes = torch.ones(n, dtype=torch.bool, device=device)[:, None]
    at_write = both(yes.expand(-1, W), ~yes.expand(-1, R))
    # How many writes of its cell, this token's own included, each read finds; if none, it is out.
    write, read = at_write.nonzero().squeeze(1), (~at_write).nonzero().squeeze(1)
    n_writes = torch.bincount(cell[write], minlength=int(cell[-1]) + 1)
    write_start = n_writes.cumsum(0) - n_writes
    visible = at_write.cumsum(0)[read] - write_start[cell[read]]
    read, visible = read[visible > 0], visible[visible > 0]
    n_reads = torch.bincount(cell[read], minlength=len(n_writes))
    read_start = n_reads.cumsum(0) - n_reads
    write_event, write_row, read_event, read_row = event[write], row[write], event[read], row[read]
    n_cells = torch.bincount(write_row[write_start[n_writes > 0]] // T, minlength=B)

    # Unread cells have no part in the output; the others are put with cells of similar lists.
    used = n_reads.nonzero().squeeze(1)
    by_length, sizes = _similar(n_writes[used], n_reads[used], _CHUNK // heads)
    groups = []
    for cells in used[by_length][:, None].split(sizes):
        L, M = int(n_writes[cells].max()), int(n_reads[cells].max())
        i, r = torch.arange(L, device=device), torch.arange(M, device=device)
        is_write, is_read = i < n_writes[cells], r < n_reads[cells]
        write = (write_start[cells] + i).clamp(max=len(write_row) - 1)
        read = (read_start[cells] + r).clamp(max=len(read_row) - 1)
        c = max(1, _TILE // max(L, M))
        # The write a read sees last, counted from the start of its tile.
        last = torch.where(is_read, visible[read] - 1, 0)
        last = last + torch.arange(len(cells), device=device)[:, None] % c * L
        write, read, is_write, is_read, last = (
            F.pad(x, (0, 0, 0, -len(cells) % c)).reshape(-1, c * x.shape[1]).repeat(heads, 1)
            for x in (write, read, is_write, is_read, last)
        )
        head = torch.arange(heads, device=device).repeat_interleave(len(last) // heads)[:, None]
        events = (
            head * (B * T * W) + write_event[write],
            head * (B * T) + write_row[write],
            head * (B * T * R) + read_event[read],
            head * (B * T) + read_row[read],
        )
        below = torch.block_diag(*[torch.ones(L, L, device=device).tril()] * c)
        groups.append(_Group(c, *events, is_write, is_read, last, below))
    return _Plan(n_cells, groups)


def _cell_ids(write_cells: Tensor, read_cells: Tensor) -> Tensor:
    """Whole numbers that are equal where sequence and coordinates are, `[B, T, W + R]`."""
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
    return (b * size[0] + both[..., 0]) * size[1] + both[..., 1]


def _similar(n_writes: Tensor, n_reads: Tensor, most_items: int) -> tuple[Tensor, list[int]]:
    """An order of the cells, and the lengths of stretches of it with lists of similar lengths.

    A stretch has at most about `most_items` pairs, or rows of 32 numbers.
    """
    longest = torch.maximum(n_writes, n_reads)
    # Longest lists first; cells whose two lists differ much have stretches of their own.
    ratio = (torch.log2(n_writes / n_reads) / 2).round().long()
    key, order = (ratio * 2**32 + longest).sort(descending=True)
    keys, lengths = key.tolist(), longest[order].tolist()
    sizes = []
    start = 0
    while start < len(keys):
        length = lengths[start]
        most = max(1, most_items // (length * max(length, 32)))
        shortest = keys[start] - length // 4
        end = bisect_right(keys, -shortest, start, min(start + most, len(keys)), key=neg)
        sizes.append(end - start)
        start = end
    return order, sizes


class _Cells(torch.autograd.Function):
    """The outputs `[H * B * T, V]` of all cells added up, with gradients by hand.

    Takes the plan, rows of q, k and v `[H * B * T, width]`, per write event `w log(alpha)`
    (float64: running sums of logs reach where a float32 has few digits left) and `beta w`, and per
    read event its weight. The gradient computes each group anew: that costs less than fresh memory.
    """

    @staticmethod
    def forward(
        ctx: Any,
        plan: _Plan,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        log_decay: Tensor,
        bw: Tensor,
        w_read: Tensor,
    ) -> Tensor:
        out = torch.zeros_like(v)
        for group in plan.groups:
            lists = _Lists(group, q, k, v, log_decay, bw, w_read)
            out.index_add_(0, group.read_row.flatten(), lists.O.mul_(lists.w_read).flatten(0, 1))
        ctx.plan = plan
        ctx.save_for_backward(q, k, v, log_decay, bw, w_read)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        d_out = grads[0].contiguous()
        dq, dk, dv, d_log_decay, d_bw, d_w_read = (torch.zeros_like(x) for x in inputs)
        for group in ctx.plan.groups:
            x = _Lists(group, *inputs)
            dO = F.embedding(group.read_row, d_out)
            d_w = x.O.mul_(dO).sum(-1)
            dO *= x.w_read
            U = x.E * x.bw
            dU = x.P.mT.bmm(dO)
            # The gradients of V and E are bw Z and Z - dU, where Z = dU - C^T (bw Z).
            Z = unit_triangular_solve(x.C.mT * x.bw.mT, dU, upper=True)
            minus_dV = Z * x.bw.neg()
            # A pair's decay G_i - G_j has the gradient that its product has. Summed over pairs,
            # that is `o . do` for a read, less `v . dv` for a write.
            d_G = x.V.mul_(minus_dV).sum(-1)
            d_G.scatter_add_(-1, group.last, x.w_read[..., 0] * d_w)
            d_G = d_G.double().unflatten(-1, (group.cells, -1)).flip(-1).cumsum(-1).flip(-1)
            d_KK = minus_dV.bmm(U.mT).mul_(x.decay)
            d_KK.diagonal(dim1=-2, dim2=-1).zero_()
            d_QK = dO.bmm(U.mT).mul_(x.read_decay)
            dK = d_KK.bmm(x.K).baddbmm_(d_KK.mT, x.K).baddbmm_(d_QK.mT, x.Q)
            read_row, write_row = group.read_row.flatten(), group.write_row.flatten()
            dq.index_add_(0, read_row, d_QK.bmm(x.K).flatten(0, 1))
            dk.index_add_(0, write_row, dK.flatten(0, 1))
            dv.index_add_(0, write_row, minus_dV.flatten(0, 1), alpha=-1)
            write = group.write.flatten()
            d_log_decay.index_add_(0, write, d_G.flatten())
            d_bw.index_add_(0, write, x.E.mul_(Z).sum(-1).flatten())
            d_w_read.index_add_(0, group.read.flatten(), (d_w * group.is_read).flatten())
        return None, dq, dk, dv, d_log_decay, d_bw, d_w_read


class _Lists:
    """What a group's lists hold, named as in `lists_lattice_rule`; padded entries weigh nothing."""

    def __init__(
        self,
        group: _Group,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        log_decay: Tensor,
        bw: Tensor,
        w_read: Tensor,
    ) -> None:
        self.bw = (bw[group.write] * group.is_write)[..., None]
        self.w_read = (w_read[group.read] * group.is_read)[..., None]
        self.Q, self.K = F.embedding(group.read_row, q), F.embedding(group.write_row, k)
        self.V = F.embedding(group.write_row, v)
        self.decay = _decay(log_decay[group.write] * group.is_write, group, v.dtype)
        N, L, _ = self.decay.shape
        last_row = group.last + torch.arange(N, device=v.device)[:, None] * L
        self.read_decay = F.embedding(last_row, self.decay.flatten(0, 1))
        # Of C only what lies strictly below the diagonal is ever used.
        self.C = self.K.bmm(self.K.mT).mul_(self.decay)
        self.P = self.Q.bmm(self.K.mT).mul_(self.read_decay)
        self.E = unit_triangular_solve(self.C * self.bw.mT, self.V, upper=False)
        self.O = self.P.bmm(self.bw * self.E)


def _decay(log_decay: Tensor, group: _Group, dtype: torch.dtype) -> Tensor:
    """`exp(G_i - G_j)` `[N, L, L]` for j <= i of the same cell, else 0."""
    G = log_decay.unflatten(-1, (group.cells, -1)).cumsum(-1).flatten(-2)
    return pair_decay(G, dtype).mul_(group.below)
