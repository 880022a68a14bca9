"""Gated DeltaNet, a fixed-size fast-weight memory per head."""

from __future__ import annotations

from torch import Tensor

from mixbench.mixers.delta_mixer import DeltaMixer
from mixbench.ops.gated_delta_rule import chunk_gated_delta_rule


class GatedDeltaNet(DeltaMixer):
    """Gated delta rule with a short convolution (arXiv 2412.06464), `[B, T, D] -> [B, T, D]`.

    Args and errors: see `DeltaMixer`.
    """

    def __init__(
        self,
        *,
        d_model: int,
        causal: bool,
        num_heads: int = 2,
        key_width: int | None = None,
        value_width: int | None = None,
        conv_width: int = 4,
        conv_init_std: float | None = None,
        retention_init: float = 0.0,
        out_gate_init: float = 1.0,
    ) -> None:
        super().__init__(
            d_model=d_model,
            causal=causal,
            num_heads=num_heads,
            key_width=key_width,
            value_width=value_width,
            conv_width=conv_width,
            conv_init_std=conv_init_std,
            retention_init=retention_init,
            out_gate_init=out_gate_init,
        )
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        q, k, v = self.content(x)
        alpha, beta = self.gates(x)
        out, _ = chunk_gated_delta_rule(q, k, v, alpha, beta)
        return self.out_gate * self.o_proj(out.flatten(-2))

    def state_size(self, seq_len: int) -> int:
        """One V x K state a head and the convolution's last inputs, whatever the length."""
        return self.cell_size + self.conv.state_size
