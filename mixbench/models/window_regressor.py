"""A window of numbers to one number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mixbench.core.errors import at_least
from mixbench.mixers.base import Mixer
from mixbench.models.blocks import WindowBlock


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

    objective = "values"

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
