"""Models that put a mixer to work. They never touch a mixer's initial values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixbench.errors import at_least
from mixbench.mixers.mixer import Mixer
from mixbench.ops.layers import rms_norm, silu_product

Residual = Literal["normalised", "prenorm"]


def mixed(mixer: Mixer, x: Tensor) -> Tensor:
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
        h = skip + mixed(self.mixer, normalised)
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
        x = x + mixed(self.mixer, self.norm1(x))
        return x + self.ff(self.norm2(x))


class WindowRegressor(nn.Module):
    """A window of numbers `[B, T]` to one number `[B]`.

    A linear layer and learned positions (N(0, 0.02)) make the tokens, blocks mix them, and a linear
    layer reads all of them at once.

    Args:
        seq_len: Window length T.
        make_mixer: Builds one mixer of width `d_model`; called once a layer.
        d_model: Model width D.
        d_inner: Width of the blocks' feed-forward layers.
        num_layers: Blocks.
    """

    kind = "values"

    def __init__(
        self,
        *,
        seq_len: int,
        make_mixer: Callable[[], Mixer],
        d_model: int = 64,
        d_inner: int = 128,
        num_layers: int = 2,
    ) -> None:
        super().__init__()
        at_least("num_layers", num_layers, 1)
        at_least("d_model", d_model, 1)
        at_least("d_inner", d_inner, 1)
        self.embedding = nn.Linear(1, d_model)
        self.positions = nn.Parameter(torch.empty(1, seq_len, d_model))
        self.blocks = nn.ModuleList(
            WindowBlock(d_model, d_inner, make_mixer()) for _ in range(num_layers)
        )
        self.head = nn.Linear(seq_len * d_model, 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.positions, std=0.02)

    def forward(self, windows: Tensor) -> Tensor:
        x = self.embedding(windows[..., None]) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x.flatten(1))[:, 0]


class LanguageModel(nn.Module):
    """Embedding, blocks, RMSNorm, untied bias-free head: tokens `[B, T]` to logits `[B, T, N]`.

    Args:
        vocab_size: Tokens N.
        make_mixer: Builds one mixer of width `d_model`; called once a layer.
        d_model: Model width D.
        num_layers: Blocks.
        residual: `normalised` or `prenorm`, see `Block`.
    """

    kind = "tokens"

    def __init__(
        self,
        *,
        vocab_size: int,
        make_mixer: Callable[[], Mixer],
        d_model: int = 64,
        num_layers: int = 2,
        residual: Residual = "normalised",
    ) -> None:
        super().__init__()
        at_least("num_layers", num_layers, 1)
        at_least("d_model", d_model, 1)
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(
            Block(d_model, make_mixer(), residual) for _ in range(num_layers)
        )
        self.norm = RMSNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, tokens: Tensor, where: Tensor | None = None) -> Tensor:
        """Logits at every position `[B, T, N]`, or only where a `[B, T]` mask is true `[M, N]`."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        if where is not None:
            x = x[where]
        return self.head(self.norm(x))


def mixers(model: nn.Module) -> list[Mixer]:
    """The model's mixers, first layer first."""
    return [module for module in model.modules() if isinstance(module, Mixer)]


def n_cells(model: nn.Module) -> int | None:
    """Memory cells in the fullest layer and sequence of the last batch; None without cells."""
    counts = [
        int(m.n_cells.max()) for m in mixers(model) if m.n_cells is not None and m.n_cells.numel()
    ]
    return max(counts, default=None)


def mixer_inputs(model: nn.Module, *inputs: Tensor) -> list[Tensor]:
    """What each mixer is given, `[B, T, D]`, when the model is called on `inputs`."""
    seen: list[Tensor] = []
    hooks = [
        mixer.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
        for mixer in mixers(model)
    ]
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return seen
