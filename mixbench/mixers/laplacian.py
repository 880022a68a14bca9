"""First-spike Laplacian attention: distances between latencies instead of dot products."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixbench.core.errors import positive
from mixbench.mixers.base import inverse_softplus
from mixbench.mixers.claims import Claim
from mixbench.mixers.cost import Operations, sigmoid
from mixbench.mixers.parts.attention_weights import weight_checks
from mixbench.mixers.parts.projected import CachedMixer, pairs_per_token
from mixbench.ops.laplacian_attention import laplacian_attention, laplacian_logits

_SIGMA_FLOOR = 1e-6


class Laplacian(CachedMixer):
    """Softmax over minus the L1 distance of latencies `sigmoid(q)`, `sigmoid(k)`, over sigma.

    Queries meet keys without a multiplication. `sigma_h = softplus(theta_h) + 1e-6` is learned per
    head. `[B, T, D] -> [B, T, D]`. A published relative: EcoTransformer, arXiv 2507.20096.

    Args, besides those of `ProjectedMixer`:
        sigma: Where `softplus(theta)` starts; larger is less selective.

    Raises:
        SettingError: As `ProjectedMixer`; `sigma` not positive.
    """

    def __init__(
        self,
        *,
        d_model: int,
        causal: bool,
        num_heads: int = 2,
        sigma: float = 0.7,
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
        positive("sigma", sigma)
        self.sigma_init = sigma
        self.theta = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.constant_(self.theta, inverse_softplus(self.sigma_init))

    @property
    def sigma(self) -> Tensor:
        """The heads' widths `[H]`."""
        return F.softplus(self.theta) + _SIGMA_FLOOR

    def mix(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.merge(laplacian_attention(q, k, v, self.sigma, self.causal).to(v.dtype))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return laplacian_attention(q, k, v, self.sigma).to(v.dtype)

    def symmetries(self) -> tuple[str, ...]:
        return self._reordered()

    def signature(self, x: Tensor) -> list[Claim]:
        """Weights are a distribution; a larger sigma, here the trained one scaled, selects less."""
        q, k, _ = self.heads(self.convolved(x))
        narrow, weights, wide = (
            laplacian_logits(q, k, scale * self.sigma, self.causal).softmax(-1)
            for scale in (0.5, 1.0, 2.0)
        )
        entropies = [
            float(-torch.xlogy(each, each).sum(-1).mean()) for each in (narrow, weights, wide)
        ]
        sigma = self.sigma.tolist()
        return [
            *weight_checks(weights),
            Claim.rising("entropy rises with sigma (times 1/2, 1, 2)", entropies),
            Claim(
                "learned sigmas are positive and finite",
                "> 0",
                sigma,
                None,
                all(0 < s < math.inf for s in sigma),
            ),
            Claim(
                "entropy lies between 0 and log T",
                [0.0, math.log(x.shape[1])],
                entropies[1],
                1e-5,
                -1e-5 <= entropies[1] <= math.log(x.shape[1]) + 1e-5,
            ),
        ]

    def pair_operations(self) -> Operations:
        # Dividing by sigma is folded into the latencies.
        return Operations(additions=self.head_width - 1, absolute_differences=self.head_width)

    def operations(self, seq_len: int) -> Operations:
        pairs = pairs_per_token(seq_len, self.causal)
        latencies = (sigmoid() + Operations(multiplies=1)) * (2 * self.d_model)
        return (
            self.overhead_operations()
            + self.projection_operations()
            + latencies
            + self.attended_operations(pairs)
        )
