"""Gated DeltaNet, a fixed-size fast-weight memory per head."""

from __future__ import annotations

from torch import Tensor

from mixbench.mixers.claims import Claim
from mixbench.mixers.cost import Operations
from mixbench.mixers.parts.delta import DeltaMixer, credit_check
from mixbench.ops.gated_delta_rule import gated_delta_rule, naive_gated_delta_rule


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
        retention_init: float = 4.0,
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
        out, _ = gated_delta_rule(q, k, v, alpha, beta)
        return self.out_gate * self.o_proj(out.flatten(-2))

    def state_size(self, seq_len: int) -> int:
        """One V x K state a head and the convolution's last inputs, whatever the length."""
        return self.cell_size + self.conv_state_size()

    def operations(self, seq_len: int) -> Operations:
        return self.overhead_operations() + self.write_operations() + self.read_operations()

    def init_state(self, batch: int) -> dict[str, Tensor]:
        return {"conv": self.conv.init_state(batch), "cell": self.empty_cell(batch)}

    def step(self, x: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        x, conv = self.conv.step(x, state["conv"])
        x = x[:, None]
        q, k, v = self.content(x)
        alpha, beta = self.gates(x)
        out, cell = naive_gated_delta_rule(q, k, v, alpha, beta, state["cell"])
        return self.out_gate * self.o_proj(out[:, 0].flatten(-2)), {"conv": conv, "cell": cell}

    def signature(self, x: Tensor) -> list[Claim]:
        """Credit falls as the product of the gates; the trained gates and keys are in range."""
        x = self.conv(x)
        _, k, _ = self.content(x)
        alpha, _ = self.gates(x)
        norms = k.norm(dim=-1)
        low, high = float(alpha.min()), float(alpha.max())
        return [
            credit_check(
                lambda *c: gated_delta_rule(*c)[0], [1.0], self.key_width, self.value_width
            ),
            Claim.close("keys have unit norm", 0.0, float((norms - 1).abs().max()), 1e-4),
            Claim(
                "retention gates lie in [1e-4, 0.9991]",
                [1e-4, 0.9991],
                [low, high],
                1e-6,
                1e-4 - 1e-6 <= low <= high <= 0.9991 + 1e-6,
            ),
        ]
