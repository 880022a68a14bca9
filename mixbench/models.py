"""Models that put a mixer to work. They never touch a mixer's initial values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from mixbench.mixers.mixer import Mixer, at_least

Residual = Literal["normalised", "prenorm"]


class SwiGLU(nn.Module):
    """`down(silu(gate x) * up x)`, bias-free, `[..., D] -> [..., D]` (arXiv 2002.05202)."""

    def __init__(self, d_model: int, d_inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_inner, bias=False)
        self.up = nn.Linear(d_model, d_inner, bias=False)
        self.down = nn.Linear(d_inner, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """RMSNorm, mixer, RMSNorm, SwiGLU, `[B, T, D] -> [B, T, D]`.

    With `residual="normalised"` (published) the mixer's output is added to the *normalised* input:
    `h = norm1(x); h = h + mixer(h); x = h + mlp(norm2(h))`. `prenorm` is the usual form,
    `h = x + mixer(norm1(x))`.
    """

    def __init__(self, d_model: int, mixer: Mixer, residual: Residual) -> None:
        super().__init__()
        self.residual = residual
        self.norm1 = nn.RMSNorm(d_model)
        self.mixer = mixer
        self.norm2 = nn.RMSNorm(d_model)
        self.mlp = SwiGLU(d_model, 2 * d_model)

    def forward(self, x: Tensor) -> Tensor:
        normalised = self.norm1(x)
        skip = normalised if self.residual == "normalised" else x
        mixed = self.mixer(normalised)
        if mixed.shape != x.shape:  # an addition would broadcast and hide it
            raise ValueError(
                f"{type(self.mixer).__name__} returned {tuple(mixed.shape)} for {tuple(x.shape)}"
            )
        h = skip + mixed
        return h + self.mlp(self.norm2(h))


class LanguageModel(nn.Module):
    """Embedding, blocks, RMSNorm, untied bias-free head: tokens `[B, T]` to logits `[B, T, N]`.

    Args:
        vocab_size: Tokens N.
        make_mixer: Builds one mixer of width `d_model`; called once a layer.
        d_model: Model width D.
        num_layers: Blocks.
        residual: `normalised` or `prenorm`, see `Block`.
    """

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
        self.norm = nn.RMSNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, tokens: Tensor, where: Tensor | None = None) -> Tensor:
        """Logits at every position `[B, T, N]`, or only where a `[B, T]` mask is true `[M, N]`."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        if where is not None:
            x = x[where]
        return self.head(self.norm(x))

    @property
    def n_cells(self) -> int | None:
        """Memory cells in the fullest layer and sequence of the last batch; None without cells."""
        mixers = (module for module in self.modules() if isinstance(module, Mixer))
        counts = [int(mixer.n_cells.max()) for mixer in mixers if mixer.n_cells is not None]
        return max(counts, default=None)
