"""The short causal convolution that the recall mixers put before their projections."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mixbench.core.errors import at_least, positive
from mixbench.mixers.cost import Operations
from mixbench.ops.short_convolution import short_convolution


class ShortConvolution(nn.Module):
    """Causal depthwise convolution over time, `[B, T, D] -> [B, T, D]`.

    Args:
        d_model: Channels D.
        width: Taps: the token itself and the `width - 1` before it.
        init_std: Standard deviation of the initial weights; `1 / sqrt(width)` if None. The bias
            starts at zero.
    """

    def __init__(self, d_model: int, width: int, init_std: float | None = None) -> None:
        super().__init__()
        at_least("conv_width", width, 1)
        if init_std is not None:
            positive("conv_init_std", init_std)
        self.width = width
        self.init_std = width**-0.5 if init_std is None else init_std
        self.weight = nn.Parameter(torch.empty(d_model, width))
        self.bias = nn.Parameter(torch.empty(d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.init_std)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return short_convolution(x, self.weight, self.bias)

    def init_state(self, batch: int) -> Tensor:
        """The inputs before the first, zeros `[B, width - 1, D]`."""
        return self.weight.new_zeros(batch, self.width - 1, len(self.bias))

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One token `[B, D]`: its output `[B, D]` and the last `width - 1` inputs."""
        seen = torch.cat([state, x[:, None]], dim=1)
        return (seen * self.weight.t()).sum(1) + self.bias, seen[:, 1:]

    @property
    def state_size(self) -> int:
        """Numbers held a sequence when streaming: the last `width - 1` inputs."""
        return (self.width - 1) * len(self.bias)

    def operations(self) -> Operations:
        """Operations a token."""
        taps = self.width * len(self.bias)
        return Operations(multiplies=taps, additions=taps)
