"""Residual blocks of a mixer and a feed-forward layer."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixbench.mixers.base import Mixer
from mixbench.ops.layers import rms_norm, silu_product

Residual = Literal["normalised", "prenorm"]


def apply_mixer(mixer: Mixer, x: Tensor) -> Tensor:
    """The mixer's output, of its input's shape; a residual would broadcast and hide another one."""
    out = mixer(x)
    if out.shape != x.shape:
        raise ValueError(f"{type(mixer).__name__} returned {tuple(out.shape)} for {tuple(x.shape)}")
    return out


class RMSNorm(nn.RMSNorm):
    """PyTorch's RMS norm over the last axis, its initial weights and its epsilon, computed fast."""

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, torch.finfo(x.dtype).eps)


class SwiGLU(nn.Module):
    """`down(silu(gate x) * up x)`, bias-free, `[..., D] -> [..., D]` (arXiv 2002.05202)."""

    def __init__(self, d_model: int, d_inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_inner, bias=False)
        self.up = nn.Linear(d_model, d_inner, bias=False)
        self.down = nn.Linear(d_inner, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        both = F.linear(x, torch.cat([self.gate.weight, self.up.weight]))
        return self.down(silu_product(both))


class Block(nn.Module):
    """RMSNorm, mixer, RMSNorm, SwiGLU, `[B, T, D] -> [B, T, D]`.

    With `residual="normalised"` (published) the mixer's output is added to the *normalised* input:
    `h = norm1(x); h = h + mixer(h); x = h + mlp(norm2(h))`. `prenorm` is the usual form,
    `h = x + mixer(norm1(x))`.
    """

    def __init__(self, d_model: int, mixer: Mixer, residual: Residual) -> None:
        super().__init__()
        self.residual = residual
        self.norm1 = RMSNorm(d_model)
        self.mixer = mixer
        self.norm2 = RMSNorm(d_model)
        self.mlp = SwiGLU(d_model, 2 * d_model)

    def forward(self, x: Tensor) -> Tensor:
        normalised = self.norm1(x)
        skip = normalised if self.residual == "normalised" else x
        h = skip + apply_mixer(self.mixer, normalised)
        return h + self.mlp(self.norm2(h))


class WindowBlock(nn.Module):
    """LayerNorm, mixer, residual; LayerNorm, Linear-ReLU-Linear, residual, `[B, T, D]`."""

    def __init__(self, d_model: int, d_inner: int, mixer: Mixer) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model)
        self.mixer = mixer
        self.norm2 = nn.LayerNorm(d_model)
        self.ff = nn.Sequential(nn.Linear(d_model, d_inner), nn.ReLU(), nn.Linear(d_inner, d_model))

    def forward(self, x: Tensor) -> Tensor:
        x = x + apply_mixer(self.mixer, self.norm1(x))
        return x + self.ff(self.norm2(x))
