"""muLattice: a growing two-dimensional lattice of gated delta rule cells."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixbench.errors import SettingError
from mixbench.mixers.delta_mixer import DeltaMixer
from mixbench.ops.gated_delta_rule import chunk_gated_delta_rule
from mixbench.ops.lattice_rule import ReadMode, Weights, lattice_rule


class AddressProjection(nn.Linear):
    """A point of the plane per token, `[B, T, D] -> [B, T, 2]`; weights start at N(0, 1/sqrt(D)).

    The bias starts at zero.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, 2)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.in_features**-0.5)
        nn.init.zeros_(self.bias)


class ReadOffset(nn.Linear):
    """How far from its write address a token reads, `[B, T, D] -> [B, T, 2]`; starts at zero."""

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, 2)

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


class Lattice(DeltaMixer):
    """Gated DeltaNet's content, stored in cells by address, `[B, T, D] -> [B, T, D]`.

    The content (convolution, projections, gates) is that of `GatedDeltaNet`, with queries scaled
    per head by `softplus(q_scale)`. Two projections give each token a write and a read address in
    the plane, shared by the heads; `mixbench.ops.lattice_rule` says what happens there. Cells that
    nobody writes to do not exist, so memory grows with what is stored.

    Args, besides those of `DeltaMixer`:
        addr_scale: Addresses lie within plus and minus this many cells (published: 8).
        learn_addr_scale: Learn the scale, through a softplus, from `addr_scale` on.
        bounded: Addresses are `scale * tanh(W x + b)`, else `scale * (W x + b)`.
        weights: `unit` or `partition`, see `spline_neighbourhood`.
        read_mode: `all` nine cells or the `nearest` one.
        read_tie: The read address is the write address, detached, plus a linear map of the token
            that starts at zero.
        one_cell: Cap the lattice at a single cell without addresses: Gated DeltaNet with scaled
            queries.

    Raises:
        SettingError: As `DeltaMixer`; `addr_scale` not positive; `read_tie` with `one_cell`.
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
        addr_scale: float = 8.0,
        learn_addr_scale: bool = False,
        bounded: bool = True,
        weights: Weights = "unit",
        read_mode: ReadMode = "all",
        read_tie: bool = False,
        one_cell: bool = False,
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
        if not 0 < addr_scale < math.inf:
            raise SettingError("addr_scale", expected="a positive number", got=addr_scale)
        if one_cell and read_tie:
            raise SettingError(
                "read_tie", expected="false with one_cell=true, which has no addresses", got="true"
            )
        self.addr_scale = addr_scale
        self.bounded = bounded
        self.weights: Weights = weights
        self.read_mode: ReadMode = read_mode
        self.read_tie = read_tie
        self.one_cell = one_cell
        self.q_scale = nn.Parameter(torch.empty(num_heads))
        if not one_cell:
            self.write_proj = AddressProjection(d_model)
            self.read_proj = ReadOffset(d_model) if read_tie else AddressProjection(d_model)
        self.raw_addr_scale = nn.Parameter(torch.empty(())) if learn_addr_scale else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.zeros_(self.q_scale)
        if self.raw_addr_scale is not None:  # the inverse of softplus, without overflow
            raw = self.addr_scale + math.log(-math.expm1(-self.addr_scale))
            nn.init.constant_(self.raw_addr_scale, raw)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        q, k, v = self.content(x)
        q = q * F.softplus(self.q_scale)[:, None]
        alpha, beta = self.gates(x)
        if self.one_cell:
            out, _ = chunk_gated_delta_rule(q, k, v, alpha, beta)
            self.n_cells = torch.full((len(x),), min(1, x.shape[1]), device=x.device)
        else:
            write_address, read_address = self.addresses(x)
            out, self.n_cells = lattice_rule(
                write_address, read_address, q, k, v, alpha, beta, self.weights, self.read_mode
            )
        return self.out_gate * self.o_proj(out.flatten(-2))

    def addresses(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Write and read addresses `[B, T, 2]`, in cells, of convolved inputs."""
        write = self._place(self.write_proj(x))
        if self.read_tie:
            return write, write.detach() + self.read_proj(x)
        return write, self._place(self.read_proj(x))

    def _place(self, point: Tensor) -> Tensor:
        scale = self.addr_scale if self.raw_addr_scale is None else F.softplus(self.raw_addr_scale)
        return scale * (torch.tanh(point) if self.bounded else point)

    def state_size(self, seq_len: int) -> int:
        """At most this: nine cells a token, or all that lie within bounded addresses."""
        cells = 1 if self.one_cell else 9 * seq_len
        if self.bounded and self.raw_addr_scale is None and not self.one_cell:
            # tanh reaches 1 in floating point, so centres run to round(scale), cells one further.
            cells = min(cells, (2 * (round(self.addr_scale) + 1) + 1) ** 2)
        return cells * self.cell_size + self.conv.state_size
