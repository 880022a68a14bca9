"""Spiderweb hierarchical attention."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from mixbench.core.errors import SettingError, at_least
from mixbench.mixers.claims import Claim
from mixbench.mixers.cost import Operations
from mixbench.mixers.parts.attention_weights import window_pairs
from mixbench.mixers.parts.projected import KEY_BIAS_HAS_NO_GRADIENT, ProjectedMixer
from mixbench.mixers.parts.spiderweb_theory import predictions, reach
from mixbench.ops.spiderweb import Projections, num_levels, spiderweb_update


class Spiderweb(ProjectedMixer):
    """Attention among neighbouring cells of growing size, `[B, T, D] -> [B, T, D]`.

    The published layer adds each level's update to the tokens; a mixer has no residual inside, so
    this one returns the sum of the updates. All levels share the projections; each has a learned
    gate that starts at `1 / (level + 1)`. Work is O(T log T) in both forms, without a T x T matrix.
    `mixbench.ops.spiderweb` defines the layer and its causal form.

    Args, besides those of `ProjectedMixer`:
        seq_len: The longest sequence that there will be a gate for every level of.
        eta: Growth of the cells from level to level.
        levels: Levels beyond the first; None for as many as `seq_len` needs.
        radius: Cells seen on each side (before the own one when causal).

    Raises:
        SettingError: As `ProjectedMixer`; `eta` below 2, a negative `radius`, `levels` negative or
            more than `seq_len` allows.
    """

    def __init__(
        self,
        *,
        d_model: int,
        causal: bool,
        seq_len: int,
        num_heads: int = 2,
        eta: int = 2,
        levels: int | None = None,
        radius: int = 1,
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
        at_least("seq_len", seq_len, 1)
        at_least("eta", eta, 2)
        at_least("radius", radius, 0)
        most = num_levels(seq_len, eta)
        if levels is not None and not 0 <= levels <= most:
            raise SettingError(
                "levels", expected=f"0 to {most} (seq_len={seq_len}, eta={eta})", got=levels
            )
        self.eta = eta
        self.radius = radius
        self.gates = nn.Parameter(torch.empty((most if levels is None else levels) + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        with torch.no_grad():
            self.gates.copy_(1 / torch.arange(1, len(self.gates) + 1))

    def mix(self, x: Tensor) -> Tensor:
        """The sum of the updates of as many levels as the length needs."""
        if x.shape[1] == 0:
            return torch.zeros_like(x)
        used = self.gates[: num_levels(x.shape[1], self.eta) + 1]
        return spiderweb_update(x, self._projections(), used, self.eta, self.radius, self.causal)

    def _projections(self) -> Projections:
        into = (self.q_proj, self.k_proj, self.v_proj)
        weight, bias = torch.cat([p.weight for p in into]), torch.cat([p.bias for p in into])
        out = self.o_proj
        return Projections(self.num_heads, weight, bias, out.weight, out.bias)

    # Streaming: every level keeps its current cell's sum, and the keys and values of the complete
    # cells within the radius.

    def mix_state(self, batch: int) -> dict[str, Any]:
        zero = self.gates.new_zeros(batch, self.d_model)
        near = self.gates.new_zeros(batch, self.num_heads, 0, self.head_width)
        level = {"sum": zero, "k": near, "v": near}
        return {"t": 0, "levels": [level] * len(self.gates)}

    def mix_step(self, x: Tensor, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        t = state["t"]
        token, after = x, []
        for level, held in enumerate(state["levels"]):
            size = self.eta**level
            total = held["sum"] + token
            q, k, v = self.heads((total / (t % size + 1))[:, None])
            keys, values = (torch.cat([held[n], new], 2) for n, new in (("k", k), ("v", v)))
            if level <= num_levels(t + 1, self.eta):
                weights = (q @ keys.mT / self.head_width**0.5).softmax(-1)
                token = token + self.gates[level] * self.merge(weights @ values)[:, 0]
            if (t + 1) % size == 0:  # complete: its last prefix is its mean
                first = max(0, keys.shape[2] - self.radius)
                held = {"k": keys[:, :, first:], "v": values[:, :, first:]}
                total = torch.zeros_like(total)
            after.append({"sum": total, "k": held["k"], "v": held["v"]})
        return token - x, {"t": t + 1, "levels": after}

    def state_size(self, seq_len: int) -> int:
        """Per level a sum and up to `radius` keys and values, and the convolution's inputs."""
        complete = [seq_len // self.eta**level for level in range(len(self.gates))]
        cells = sum(1 + 2 * min(self.radius, number) for number in complete)
        return self.d_model * cells + self.conv_state_size()

    def operations(self, seq_len: int) -> Operations:
        D = self.d_model
        total = Operations()
        for level in range(min(num_levels(seq_len, self.eta), len(self.gates) - 1) + 1):
            size = self.eta**level
            cells = math.ceil(seq_len / size)
            # Causally every token has a query, key and value of its own: its prefix's.
            rows = seq_len if self.causal else cells
            if self.causal:
                pairs = sum(1 + min(self.radius, t // size) for t in range(seq_len))
            else:
                pairs = window_pairs(cells, self.radius, self.radius)
            # Means: an addition a token and a division a row. Scaling the queries: D a row.
            means = Operations(additions=D) * seq_len + Operations(multiplies=2 * D) * rows
            update = Operations(multiplies=D, additions=D) * seq_len
            total += means + self.projection_operations() * rows + update
            total += self.attended_operations(pairs)
        return self.overhead_operations() + total * (1 / seq_len)

    def exceptions(self) -> dict[str, str]:
        return KEY_BIAS_HAS_NO_GRADIENT

    def signature(self, x: Tensor) -> list[Claim]:
        """The four analytic predictions, the trained gates, and reach by gradients."""
        T = x.shape[1]
        middle = T // 2
        predicted = reach(T, len(self.gates) - 1, self.eta, self.radius, self.causal)[middle]
        observed = self._reached(self.convolved(x[:1]), middle)
        gates = self.gates.tolist()
        return [
            *_analytic_checks(),
            Claim(
                "gates are finite and at work",
                "finite, not zero",
                gates,
                None,
                all(math.isfinite(gate) and gate != 0 for gate in gates),
            ),
            Claim(
                "reach of the middle output, by gradients",
                sorted(predicted),
                sorted(observed),
                None,
                observed == predicted,
            ),
        ]

    def _reached(self, x: Tensor, t: int) -> set[int]:
        """The tokens of `[1, T, D]` that token t depends on after the last level."""
        with torch.enable_grad():
            x = x.detach().double().requires_grad_()
            after = x + deepcopy(self).double().mix(x)
            (grad,) = torch.autograd.grad(after[0, t].square().sum(), x)
        return {int(i) for i in grad[0].abs().amax(-1).nonzero()}


def _analytic_checks() -> list[Claim]:
    p = predictions()
    low, high = p["work_scaling"]["spiderweb_ratio_range"]
    transition, communication = p["transition"], p["communication"]
    reached = communication["coverage"]["spiderweb"]["mean_reachable"]
    return [
        Claim(
            "distance falls with the level",
            [True] * 4,
            p["monotone_distance"]["confirmed_each"],
            None,
            all(p["monotone_distance"]["confirmed_each"]),
        ),
        Claim(
            "transition level in closed form",
            "mean error <= 0.04, largest <= 1",
            [transition["mean_abs_level_error"], transition["max_abs_level_error"]],
            None,
            transition["mean_abs_level_error"] <= 0.04 + 1e-9
            and transition["max_abs_level_error"] <= 1,
        ),
        Claim(
            "work grows as n log n",
            [1.636, 2.369],
            [low, high],
            5e-4,
            abs(low - 1.636) <= 5e-4 and abs(high - 2.369) <= 5e-4,
        ),
        Claim(
            "full reach at a fraction of dense work",
            {"reach": 256, "work": 3835, "dense": 65536},
            {
                "reach": reached,
                "work": communication["spiderweb_work"],
                "dense": communication["dense_attention_scores"],
            },
            None,
            reached == 256 and communication["spiderweb_work"] == 3835,
        ),
    ]
