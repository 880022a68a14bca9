"""What the attention-like mixers share: short convolution, projections, heads, output gate."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixbench.core.errors import at_least
from mixbench.mixers.base import Mixer, head_width
from mixbench.mixers.cost import Operations, dot, linear, softmax_entry, weighted_sum
from mixbench.mixers.parts.caches import KVCache
from mixbench.mixers.parts.short_convolution import ShortConvolution

KEY_BIAS_HAS_NO_GRADIENT = {
    "k_proj.bias": "a softmax ignores what is added to every score of a row"
}
"""The exception of mixers whose scores are dot products with the keys."""


class ProjectedMixer(Mixer):
    """Base of the mixers with q, k, v and o projections of width `d_model`.

    The input passes a short causal convolution (if any), a subclass mixes, and the output passes a
    learned scalar gate (if any). A subclass implements `mix` and, for streaming, `mix_state` and
    `mix_step`.

    Args:
        d_model: Model width D.
        causal: Whether the output at t may depend on inputs up to t only.
        num_heads: Heads H; must divide `d_model`.
        conv_width: Taps of the short convolution; 0 for none.
        out_gate: Multiply the output by a learned scalar that starts at one.

    Raises:
        SettingError: `num_heads` does not divide `d_model`, or a negative `conv_width`.
    """

    def __init__(
        self, *, d_model: int, causal: bool, num_heads: int, conv_width: int, out_gate: bool
    ) -> None:
        super().__init__(d_model=d_model, causal=causal)
        self.head_width = head_width(d_model, num_heads)
        at_least("conv_width", conv_width, 0)
        self.num_heads = num_heads
        self.conv = ShortConvolution(d_model, conv_width) if conv_width else None
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.o_proj = nn.Linear(d_model, d_model)
        self.out_gate = nn.Parameter(torch.empty(1)) if out_gate else None

    def reset_parameters(self) -> None:
        if self.out_gate is not None:
            nn.init.ones_(self.out_gate)

    def forward(self, x: Tensor) -> Tensor:
        return self._gated(self.mix(self.convolved(x)))

    def mix(self, x: Tensor) -> Tensor:
        """The mixing of convolved inputs, output projection included, `[B, T, D] -> [B, T, D]`."""
        raise NotImplementedError

    def convolved(self, x: Tensor) -> Tensor:
        """The input behind the short convolution."""
        return x if self.conv is None else self.conv(x)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values `[B, H, T, D / H]` of `[B, T, D]`."""
        q, k, v = (
            proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        return q, k, v

    def merge(self, x: Tensor) -> Tensor:
        """The output projection of `[B, H, T, D / H]`, heads side by side: `[B, T, D]`."""
        return self.o_proj(x.transpose(1, 2).flatten(-2))

    def conv_state_size(self) -> int:
        return 0 if self.conv is None else self.conv.state_size

    def _reordered(self) -> tuple[str, ...]:
        """The symmetries of a mixer that treats all pairs of tokens alike."""
        both_ways = not self.causal and self.conv is None
        return ("permutation", "reversal") if both_ways else ()

    def overhead_operations(self) -> Operations:
        """Operations a token outside `mix`: convolution and output gate."""
        conv = Operations() if self.conv is None else self.conv.operations()
        return conv + Operations(multiplies=0 if self.out_gate is None else self.d_model)

    def projection_operations(self) -> Operations:
        """Operations of the four projections for one row."""
        return linear(self.d_model, self.d_model) * 4

    def pair_operations(self) -> Operations:
        """A dot product; the scores' scale is folded into the queries."""
        return dot(self.head_width)

    def attended_operations(self, pairs: float) -> Operations:
        """Scores, softmax and weighted sum of `pairs` query-key pairs in each head."""
        pair = self.pair_operations() + softmax_entry() + weighted_sum(self.head_width)
        return pair * self.num_heads * pairs

    def dot_product_operations(self, pairs: float) -> Operations:
        """Operations a token of scaled dot-product attention over `pairs` keys in each head."""
        scale = Operations(multiplies=self.d_model)
        return self.projection_operations() + scale + self.attended_operations(pairs)

    def init_state(self, batch: int) -> dict[str, Any]:
        if not self.causal:
            raise NotImplementedError("only a causal mixer has a streaming form")
        conv = None if self.conv is None else self.conv.init_state(batch)
        return {"conv": conv, "mix": self.mix_state(batch)}

    def step(self, x: Tensor, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        conv = state["conv"]
        if self.conv is not None:
            x, conv = self.conv.step(x, conv)
        out, mixed = self.mix_step(x, state["mix"])
        return self._gated(out), {"conv": conv, "mix": mixed}

    def mix_state(self, batch: int) -> Any:
        """The state of `mix_step` before the first token."""
        raise NotImplementedError(f"{type(self).__name__} has no streaming form")

    def mix_step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """`mix` for one token `[B, D]` after another."""
        raise NotImplementedError(f"{type(self).__name__} has no streaming form")

    def _gated(self, x: Tensor) -> Tensor:
        return x if self.out_gate is None else self.out_gate * x


class CachedMixer(ProjectedMixer):
    """A projected mixer that streams with a cache of earlier keys and values.

    Softmax attention unless a subclass overrides `attend`; `cache_length` bounds how many tokens
    before the current one are kept.
    """

    def cache_length(self, seq_len: int) -> int:
        """Tokens held after `seq_len`."""
        return seq_len

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """One query `[B, H, 1, K]` over the cached keys and values, to `[B, H, 1, V]`."""
        return F.scaled_dot_product_attention(q, k, v)

    def state_size(self, seq_len: int) -> int:
        """A key and a value for every token held, and the convolution's last inputs."""
        return 2 * self.d_model * self.cache_length(seq_len) + self.conv_state_size()

    def mix_state(self, batch: int) -> dict[str, KVCache]:
        empty = KVCache.empty(self.q_proj.weight, batch, self.num_heads, self.head_width)
        return {"k": empty, "v": empty}

    def mix_step(self, x: Tensor, state: dict[str, KVCache]) -> tuple[Tensor, dict[str, KVCache]]:
        q, k, v = self.heads(x[:, None])
        keys, values = state["k"].append(k), state["v"].append(v)
        out = self.merge(self.attend(q, keys.rows, values.rows))[:, 0]
        kept = self.cache_length(keys.rows.shape[2])
        return out, {"k": keys.truncate_left(kept), "v": values.truncate_left(kept)}


def pairs_per_token(seq_len: int, causal: bool) -> float:
    """Query-key pairs a token of dense attention, averaged over a sequence."""
    return (seq_len + 1) / 2 if causal else seq_len
