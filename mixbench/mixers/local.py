"""Sliding-window attention, the baseline of mixers that claim to see far at low cost."""

from __future__ import annotations

from torch import Tensor

from mixbench.core.errors import at_least
from mixbench.mixers.claims import Claim
from mixbench.mixers.cost import Operations
from mixbench.mixers.parts.attention_weights import weight_checks, window_pairs
from mixbench.mixers.parts.projected import KEY_BIAS_HAS_NO_GRADIENT, CachedMixer
from mixbench.ops.window_attention import window_attention, window_weights


class Local(CachedMixer):
    """Attention to `window` tokens on each side (Longformer, arXiv 2004.05150).

    Causal, to the token itself and the `window` before it. `[B, T, D] -> [B, T, D]`.

    Args, besides those of `ProjectedMixer`:
        window: Tokens seen on each side.

    Raises:
        SettingError: As `ProjectedMixer`; `window` below 1.
    """

    def __init__(
        self,
        *,
        d_model: int,
        causal: bool,
        num_heads: int = 2,
        window: int = 4,
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
        at_least("window", window, 1)
        self.window = window
        self.reset_parameters()

    def mix(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.merge(window_attention(q, k, v, self.window, self._right))

    def cache_length(self, seq_len: int) -> int:
        return min(seq_len, self.window)

    def receptive_field(self) -> int:
        """The window, seen through the short convolution."""
        return self.window + (0 if self.conv is None else self.conv.width - 1)

    def symmetries(self) -> tuple[str, ...]:
        both_ways = not self.causal and self.conv is None
        return ("reversal", "translation") if both_ways else ("translation",)

    def exceptions(self) -> dict[str, str]:
        return KEY_BIAS_HAS_NO_GRADIENT

    def signature(self, x: Tensor) -> list[Claim]:
        """Rows sum to one, and no weight is negative."""
        q, k, _ = self.heads(self.convolved(x))
        return weight_checks(window_weights(q, k, self.window, self._right))

    def operations(self, seq_len: int) -> Operations:
        pairs = window_pairs(seq_len, self.window, self._right) / seq_len
        return self.overhead_operations() + self.dot_product_operations(pairs)

    @property
    def _right(self) -> int:
        return 0 if self.causal else self.window
