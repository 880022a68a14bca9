"""Tokens to logits of the next one."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from mixbench.core.errors import at_least
from mixbench.mixers.base import Mixer
from mixbench.models.blocks import Block, Residual, RMSNorm


class LanguageModel(nn.Module):
    """Embedding, blocks, RMSNorm, untied bias-free head: tokens `[B, T]` to logits `[B, T, N]`.

    Args:
        vocab_size: Tokens N.
        make_mixer: Builds one mixer of width `d_model`; called once a layer.
        d_model: Model width D.
        num_layers: Blocks.
        residual: `normalised` or `prenorm`, see `Block`.
    """

    objective = "tokens"

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
