"""Softmax attention, the baseline of every comparison."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixbench.mixers.mixer import Mixer, at_least, head_width
from mixbench.mixers.short_convolution import ShortConvolution


class Attention(Mixer):
    """Scaled dot-product attention (arXiv 1706.03762), `[B, T, D] -> [B, T, D]`.

    A short convolution, as the recall mixers have it, goes before the projections, and a scalar
    gate after them, so that the comparison with those mixers is about the mixing alone.

    Args:
        d_model: Model width D.
        causal: Mask later tokens.
        num_heads: Heads; must divide `d_model`.
        conv_width: Taps of the short convolution; 0 for none.

    Raises:
        SettingError: `num_heads` does not divide `d_model`, or a negative `conv_width`.
    """

    def __init__(
        self, *, d_model: int, causal: bool, num_heads: int = 2, conv_width: int = 4
    ) -> None:
        super().__init__(d_model=d_model, causal=causal)
        head_width(d_model, num_heads)
        at_least("conv_width", conv_width, 0)
        self.num_heads = num_heads
        self.conv = ShortConvolution(d_model, conv_width) if conv_width else None
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.o_proj = nn.Linear(d_model, d_model)
        self.out_gate = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.out_gate)

    def forward(self, x: Tensor) -> Tensor:
        if self.conv is not None:
            x = self.conv(x)
        q, k, v = (
            proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out_gate * self.o_proj(out.transpose(1, 2).flatten(-2))

    def state_size(self, seq_len: int) -> int:
        """The cache of keys and values, and the convolution's last inputs."""
        conv = self.conv.state_size if self.conv is not None else 0
        return 2 * seq_len * self.d_model + conv
