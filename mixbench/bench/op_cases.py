"""Ops against the plain forms of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from mixbench.bench.rows import Effort, Row, compared_rows
from mixbench.core import seeds
from mixbench.ops.gated_delta_rule import (
    chunk_gated_delta_rule,
    gated_delta_rule,
    naive_gated_delta_rule,
)
from mixbench.ops.laplacian_attention import (
    laplacian_attention,
    laplacian_logits,
    naive_laplacian_logits,
)
from mixbench.ops.lattice_rule import lattice_rule

HEADS, WIDTH = 2, 32


COMPILED, CHUNKED = "delta rule", "delta rule, chunked in PyTorch"


STEPWISE, SDPA = "delta rule, stepwise", "attention (sdpa)"


BROADCAST, CDIST = "laplacian, broadcast", "cdist(p=1)"


def ops(effort: Effort) -> Iterator[Row]:
    """Fast forms against their definitions and against PyTorch's own attention."""
    for T in effort.lengths:
        yield from _delta_and_lattice(T, effort)
        yield from _laplacian(T, effort)


def _delta_and_lattice(T: int, effort: Effort) -> Iterator[Row]:
    B = _batch(T, effort)
    with seeds.torch_stream(0, "bench", "delta", T):
        q, k = (F.normalize(torch.randn(B, T, HEADS, WIDTH), dim=-1) for _ in range(2))
        v = torch.randn(B, T, HEADS, WIDTH)
        alpha = 0.9 + 0.1 * torch.rand(B, T, HEADS)
        beta = torch.rand(B, T, HEADS)
        write, read = 2 * torch.tanh(torch.randn(2, B, T, 2))
    content = [x.requires_grad_() for x in (q, k, v, alpha, beta)]
    one = torch.zeros(B, T, 2)
    # Neighbourhoods are 3 x 3: three cells apart, no two tokens share one.
    own = torch.stack([3.0 * torch.arange(T).float(), torch.zeros(T)], dim=-1).expand(B, T, 2)
    calls: dict[str, Callable[[], Tensor]] = {
        COMPILED: lambda: gated_delta_rule(q, k, v, alpha, beta)[0],
        CHUNKED: lambda: chunk_gated_delta_rule(q, k, v, alpha, beta)[0],
        STEPWISE: lambda: naive_gated_delta_rule(q, k, v, alpha, beta)[0],
        "lattice, within 2": lambda: lattice_rule(write, read, q, k, v, alpha, beta)[0],
        "lattice, one address": lambda: lattice_rule(one, one, q, k, v, alpha, beta)[0],
        "lattice, own address": lambda: lattice_rule(own, own, q, k, v, alpha, beta)[0],
        SDPA: lambda: F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        ),
    }
    if T > 1024:
        del calls[STEPWISE]
    versus = (STEPWISE, CHUNKED, COMPILED, SDPA)
    yield from compared_rows("ops", calls, content, T, B, versus, effort)


def _laplacian(T: int, effort: Effort) -> Iterator[Row]:
    # The definition's broadcast `[B, H, T, T, K]` must fit into the memory, its gradient too.
    B = min(_batch(T, effort), max(1, 2**28 // (HEADS * T * T * WIDTH)))
    with seeds.torch_stream(0, "bench", "laplacian", T):
        q, k, v = (torch.randn(B, HEADS, T, WIDTH).requires_grad_() for _ in range(3))
    sigma = torch.full((HEADS,), 0.7)
    calls: dict[str, Callable[[], Tensor]] = {
        "laplacian": lambda: laplacian_logits(q, k, sigma),
        BROADCAST: lambda: naive_laplacian_logits(q, k, sigma),
        CDIST: lambda: torch.cdist(q, k, p=1.0),
        "laplacian attention": lambda: laplacian_attention(q, k, v, sigma),
        SDPA: lambda: F.scaled_dot_product_attention(q, k, v),
    }
    if HEADS * T * T * WIDTH > 2**28:
        del calls[BROADCAST]
    versus = (BROADCAST, CDIST, SDPA)
    yield from compared_rows("ops", calls, [q, k, v], T, B, versus, effort)


def _batch(T: int, effort: Effort) -> int:
    """B sequences, or as many as keep a definition's memory and time within reason."""
    return max(1, min(effort.batch, 2**16 // T))
