"""What the gated-delta-rule mixers share: convolution, content projections and gates."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixbench.core.errors import SettingError, at_least
from mixbench.mixers.base import Mixer, head_width
from mixbench.mixers.claims import Claim
from mixbench.mixers.cost import Operations, linear, sigmoid
from mixbench.mixers.parts.short_convolution import ShortConvolution


class Gates(nn.Module):
    """Retention and write gates, `[B, T, D] -> [B, T, H]` twice.

    One linear layer with 2H outputs, all a-gates first: `a = 0.999 sigmoid(g_a) + 1e-4`,
    `b = sigmoid(g_b)`. `retention_init` is added to the initial bias of the a-gates.
    """

    def __init__(self, d_model: int, num_heads: int, retention_init: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.retention_init = retention_init
        self.proj = nn.Linear(d_model, 2 * num_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.proj.reset_parameters()
        with torch.no_grad():
            self.proj.bias[: self.num_heads] += self.retention_init

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gate_a, gate_b = self.proj(x).split(self.num_heads, dim=-1)
        return 0.999 * torch.sigmoid(gate_a) + 1e-4, torch.sigmoid(gate_b)


class DeltaMixer(Mixer):
    """Base of the mixers whose memory cells follow the gated delta rule. Causal only.

    Args:
        d_model: Model width D.
        causal: Must be true.
        num_heads: Heads H.
        key_width: Key width K of a head; `d_model / num_heads` if None.
        value_width: Value width V of a head; `d_model / num_heads` if None.
        conv_width: Taps of the short convolution.
        conv_init_std: Standard deviation of its initial weights; `1 / sqrt(conv_width)` if None.
        retention_init: Added to the bias of the retention gates; larger keeps more
            (0: about 0.5, 4: about 0.98, 9: about 0.999 a step).
        out_gate_init: Initial value of the scalar gate on the output.

    Raises:
        SettingError: `causal` is false; a width or `num_heads` that does not fit.
    """

    def __init__(
        self,
        *,
        d_model: int,
        causal: bool,
        num_heads: int,
        key_width: int | None,
        value_width: int | None,
        conv_width: int,
        conv_init_std: float | None,
        retention_init: float,
        out_gate_init: float,
    ) -> None:
        super().__init__(d_model=d_model, causal=causal)
        if not causal:
            raise SettingError(
                "causal", expected="true (delta-rule memories only look back)", got=causal
            )
        at_least("num_heads", num_heads, 1)
        key_width = head_width(d_model, num_heads) if key_width is None else key_width
        value_width = head_width(d_model, num_heads) if value_width is None else value_width
        at_least("key_width", key_width, 1)
        at_least("value_width", value_width, 1)
        self.num_heads = num_heads
        self.key_width = key_width
        self.value_width = value_width
        self.out_gate_init = out_gate_init
        self.conv = ShortConvolution(d_model, conv_width, conv_init_std)
        self.q_proj = nn.Linear(d_model, num_heads * key_width)
        self.k_proj = nn.Linear(d_model, num_heads * key_width)
        self.v_proj = nn.Linear(d_model, num_heads * value_width)
        self.gates = Gates(d_model, num_heads, retention_init)
        self.o_proj = nn.Linear(num_heads * value_width, d_model)
        self.out_gate = nn.Parameter(torch.empty(1))

    def reset_parameters(self) -> None:
        nn.init.constant_(self.out_gate, self.out_gate_init)

    def content(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Unit queries and keys `[B, T, H, K]` and values `[B, T, H, V]` of convolved inputs."""
        q = F.normalize(self.q_proj(x).unflatten(-1, (self.num_heads, -1)), dim=-1)
        k = F.normalize(self.k_proj(x).unflatten(-1, (self.num_heads, -1)), dim=-1)
        return q, k, self.v_proj(x).unflatten(-1, (self.num_heads, -1))

    @property
    def cell_size(self) -> int:
        """Numbers in one memory cell, over all heads."""
        return self.num_heads * self.key_width * self.value_width

    def conv_state_size(self) -> int:
        return self.conv.state_size

    def empty_cell(self, batch: int) -> Tensor:
        """A cell that nobody wrote to, `[B, H, V, K]`."""
        shape = (batch, self.num_heads, self.value_width, self.key_width)
        return self.out_gate.new_zeros(shape)

    def overhead_operations(self) -> Operations:
        """Operations a token outside the cells: convolution, projections, gates, output."""
        D, H = self.d_model, self.num_heads
        keys, values = H * self.key_width, H * self.value_width
        # A square and a sum for the norm, and a division, in each of q and k.
        norms = Operations(multiplies=2 * keys, additions=keys) * 2
        gates = linear(D, 2 * H) + (sigmoid() + Operations(multiplies=0.5, additions=0.5)) * (2 * H)
        return (
            self.conv.operations()
            + linear(D, keys) * 2
            + norms
            + linear(D, values)
            + gates
            + linear(values, D)
            + Operations(multiplies=D)
        )

    def write_operations(self) -> Operations:
        """Operations of one write to one cell: decay, recall, error, rank-one update."""
        H, V, cell = self.num_heads, self.value_width, self.cell_size
        return Operations(multiplies=3 * cell + H * V, additions=2 * cell + H * V)

    def read_operations(self) -> Operations:
        """Operations of one read from one cell."""
        return Operations(multiplies=self.cell_size, additions=self.cell_size)


def credit_check(
    rule: Callable[..., Tensor], weights: list[float], key_width: int, value_width: int
) -> Claim:
    """The gradient of an output with respect to a value written d steps before.

    All keys in between are orthogonal to the one asked for, so the gradient must be
    `sum_w w^2 a^(w d)`, w running over the weights with which one token's cells are written and
    read: with a = 0.5 it is gone within some 30 steps, with a = 0.999 it passes 130.

    Args:
        rule: q, k, v, alpha, beta to outputs, float64.
        weights: The cells' weights; `[1.0]` for a single cell.
        key_width: Key width K to try it at; two orthogonal keys need at least 2.
        value_width: Value width V.
    """
    T, K = 131, max(2, key_width)
    distances = (1, 30, 130)
    predicted, observed = {}, {}
    for gate in (0.5, 0.999):
        asked, other = torch.eye(K, dtype=torch.float64)[:2]
        q = other.expand(1, T, 1, K)
        k = q.clone()
        v = torch.zeros(1, T, 1, value_width, dtype=torch.float64, requires_grad=True)
        alpha = torch.full((1, T, 1), gate, dtype=torch.float64)
        for d in distances:
            k_d = k.clone()
            k_d[0, T - 1 - d, 0] = asked
            q_d = q.clone()
            q_d[0, T - 1, 0] = asked
            with torch.enable_grad():
                out = rule(q_d, k_d, v, alpha, torch.ones_like(alpha))
                (grad,) = torch.autograd.grad(out[0, T - 1, 0, 0], v)
            key = f"gate {gate}, {d} steps"
            # A write of weight w has gate b w, which the read's weight multiplies once more.
            predicted[key] = sum(w * w * gate ** (w * d) for w in weights)
            observed[key] = float(grad[0, T - 1 - d, 0, 0])
    error = max(abs(observed[key] - predicted[key]) for key in predicted)
    return Claim(
        "credit falls as the product of the gates", predicted, observed, 1e-9, error <= 1e-9
    )
