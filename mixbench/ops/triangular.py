"""What the chunked delta rules share: decays between pairs of tokens, and triangular systems."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def pair_decay(G: Tensor, dtype: torch.dtype) -> Tensor:
    """`exp(G_i - G_j)` for j <= i, else 0, of falling log-decays, `[..., C] -> [..., C, C]`.

    G (float64) is split in two parts of the lower precision, so that its differences are exact to
    that. Decays under 1e-28 (float32; 1e-230 in float64) count as zero: denormal numbers are slow.
    """
    high = G.to(dtype)
    low = (G - high).to(dtype)
    difference = high[..., :, None] - high[..., None, :]
    difference += low[..., :, None]
    difference -= low[..., None, :]
    smallest = 0.75 * math.log(torch.finfo(dtype).tiny)
    decay = difference.clamp_(smallest, 0).exp_()
    return F.threshold(decay, math.exp(smallest + 1), 0, inplace=True).tril_()


def unit_triangular_solve(A: Tensor, X: Tensor, upper: bool) -> Tensor:
    """`(I + A)^-1 X` for A `[N, L, L]`, of which one strict triangle is read, and X `[N, L, n]`.

    Solved from the right on transposed views, which costs no copies.
    """
    return torch.linalg.solve_triangular(
        A.mT, X.mT, upper=not upper, left=False, unitriangular=True
    ).mT
