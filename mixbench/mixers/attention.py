"""Softmax attention, the baseline of every comparison."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from mixbench.mixers.claims import Claim
from mixbench.mixers.cost import Operations
from mixbench.mixers.parts.attention_weights import weight_checks
from mixbench.mixers.parts.projected import KEY_BIAS_HAS_NO_GRADIENT, CachedMixer, pairs_per_token


class Attention(CachedMixer):
    """Scaled dot-product attention (arXiv 1706.03762), `[B, T, D] -> [B, T, D]`.

    Args and errors: see `ProjectedMixer`.
    """

    def __init__(
        self,
        *,
        d_model: int,
        causal: bool,
        num_heads: int = 2,
        conv_width: int = 4,
        out_gate: bool = True,
    ) -> None:
        super().__init__(
            d_model=d_model,
            causal=causal,
            num_heads=num_heads,
            conv_width=conv_width,
            out_gate=out_gate,
        )
        self.reset_parameters()

    def mix(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal))

    def weights(self, x: Tensor) -> Tensor:
        """The attention weights `[B, H, T, T]` for convolved inputs."""
        q, k, _ = self.heads(x)
        scores = q @ k.mT / self.head_width**0.5
        if self.causal:
            T = x.shape[1]
            later = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        return scores.softmax(-1)

    def symmetries(self) -> tuple[str, ...]:
        return self._reordered()

    def exceptions(self) -> dict[str, str]:
        return KEY_BIAS_HAS_NO_GRADIENT

    def signature(self, x: Tensor) -> list[Claim]:
        """Rows sum to one, and no weight is negative."""
        return weight_checks(self.weights(self.convolved(x)))

    def operations(self, seq_len: int) -> Operations:
        pairs = pairs_per_token(seq_len, self.causal)
        return self.overhead_operations() + self.dot_product_operations(pairs)
