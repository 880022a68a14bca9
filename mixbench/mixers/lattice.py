"""muLattice: a growing two-dimensional lattice of gated delta rule cells."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixbench.core.errors import SettingError, positive
from mixbench.core.seeds import torch_stream
from mixbench.mixers.base import inverse_softplus
from mixbench.mixers.claims import Claim
from mixbench.mixers.cost import Operations, linear
from mixbench.mixers.parts.caches import PersistentCells
from mixbench.mixers.parts.delta import DeltaMixer, credit_check
from mixbench.ops.gated_delta_rule import gated_delta_rule, naive_gated_delta_rule
from mixbench.ops.lattice_rule import lattice_rule
from mixbench.ops.spline import ReadMode, Weights, read_neighbourhood, spline_neighbourhood

# Where reads seldom meet writes, and addresses spread most.
_PUBLISHED_ADDR_SCALE = 8.0


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
        retention_init: float = 4.0,
        out_gate_init: float = 1.0,
        addr_scale: float = 2.0,
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
        positive("addr_scale", addr_scale)
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
        self.state_size_is_bound = not one_cell  # how many cells depends on the addresses
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.zeros_(self.q_scale)
        if self.raw_addr_scale is not None:
            nn.init.constant_(self.raw_addr_scale, inverse_softplus(self.addr_scale))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        q, k, v = self.content(x)
        alpha, beta = self.gates(x)
        if self.one_cell:
            out, _ = gated_delta_rule(q, k, v, alpha, beta)
            self.n_cells = torch.full((len(x),), min(1, x.shape[1]), device=x.device)
        else:
            write_address, read_address = self.addresses(x)
            out, self.n_cells = lattice_rule(
                write_address, read_address, q, k, v, alpha, beta, self.weights, self.read_mode
            )
        return self.out_gate * self.o_proj(out.flatten(-2))

    def content(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As in `DeltaMixer`, with queries scaled per head."""
        q, k, v = super().content(x)
        return q * F.softplus(self.q_scale)[:, None], k, v

    def addresses(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Write and read addresses `[B, T, 2]`, in cells, of convolved inputs."""
        write = self._place(self.write_proj(x))
        if self.read_tie:
            return write, write.detach() + self.read_proj(x)
        return write, self._place(self.read_proj(x))

    def _place(self, point: Tensor) -> Tensor:
        scale = self.addr_scale if self.raw_addr_scale is None else F.softplus(self.raw_addr_scale)
        return scale * (torch.tanh(point) if self.bounded else point)

    def state_size(self, seq_len: int, cells: int | None = None) -> int:
        """The cells and the convolution's last inputs.

        Args:
            seq_len: Tokens so far.
            cells: Cells written to. None for at most: nine a token, or all that lie within bounded
                addresses.
        """
        if cells is None:
            cells = 1 if self.one_cell else 9 * seq_len
            if self.bounded and self.raw_addr_scale is None and not self.one_cell:
                # tanh reaches 1 in floating point: centres run to round(scale), cells one further.
                cells = min(cells, (2 * (round(self.addr_scale) + 1) + 1) ** 2)
        return cells * self.cell_size + self.conv_state_size()

    def operations(self, seq_len: int) -> Operations:
        H, D = self.num_heads, self.d_model
        scaled = Operations(multiplies=H * self.key_width)
        frame = self.overhead_operations() + scaled
        if self.one_cell:
            return frame + self.write_operations() + self.read_operations()
        # Per axis three spline pieces (and their norm), then nine products, for each address; tanh
        # is one exponential; a^w is one exponential a head and cell, b w one multiply.
        spline = Operations(multiplies=2 * 14 + 9, additions=2 * 8)
        address = linear(D, 2) + Operations(multiplies=2, additions=2, exponentials=2) + spline
        reads = 9 if self.read_mode == "all" else 1
        write = self.write_operations() + Operations(multiplies=2 * H, exponentials=H)
        read = self.read_operations() + Operations(multiplies=H * self.value_width)
        return frame + address * 2 + write * 9 + read * reads

    def init_state(self, batch: int) -> dict[str, Any]:
        conv = self.conv.init_state(batch)
        return {"conv": conv, "cells": [PersistentCells() for _ in range(batch)]}

    def step(self, x: Tensor, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        x, conv = self.conv.step(x, state["conv"])
        x = x[:, None]
        q, k, v = self.content(x)
        alpha, beta = self.gates(x)
        if self.one_cell:
            whole = x.new_zeros(*x.shape[:2], 1, 2)
            write_cells, write_w = whole, x.new_ones(whole.shape[:-1])
            read_cells, read_w = write_cells, write_w
        else:
            write_address, read_address = self.addresses(x)
            write_cells, write_w = spline_neighbourhood(write_address, self.weights)
            read_cells, read_w = read_neighbourhood(read_address, self.weights, self.read_mode)
        outputs: list[Tensor] = []
        cells: list[PersistentCells[tuple[float, ...]]] = []
        for b, earlier in enumerate(state["cells"]):
            written: dict[tuple[float, ...], Tensor] = {}
            for at, w in zip(write_cells[b, 0].tolist(), write_w[b, 0], strict=True):
                cell = written.get(tuple(at), earlier.cells.get(tuple(at)))
                cell = self.empty_cell(1)[0] if cell is None else cell
                cell = alpha[b, 0, :, None, None] ** w * cell
                error = v[b, 0] - (cell @ k[b, 0, :, :, None])[..., 0]
                update = (beta[b, 0] * w)[:, None] * error
                written[tuple(at)] = cell + update[..., None] * k[b, 0, :, None]
            cells.append(earlier.with_written(written))
            out = torch.zeros_like(v[b, 0])
            for at, w in zip(read_cells[b, 0].tolist(), read_w[b, 0], strict=True):
                if tuple(at) in cells[b].cells:
                    out = out + w * (cells[b].cells[tuple(at)] @ q[b, 0, :, :, None])[..., 0]
            outputs.append(out)
        mixed = self.out_gate * self.o_proj(torch.stack(outputs).flatten(-2))
        return mixed, {"conv": conv, "cells": cells}

    def signature(self, x: Tensor) -> list[Claim]:
        """Growth of the cells, credit, the addresses' collapse, the one-cell limit."""
        return [
            self._growth_check(x),
            self._credit_check(),
            self._spread_check(),
            self._one_cell_check(x),
        ]

    def diagnostics(self) -> dict[str, float]:
        """`max_cells`: cells in use at the end of the fullest sequence."""
        used = self.n_cells
        return {} if used is None or not used.numel() else {"max_cells": float(used.max())}

    def _growth_check(self, x: Tensor) -> Claim:
        """Sequences that repeat their first m tokens: more distinct ones, more cells."""
        T = x.shape[1]
        counts = {}
        copy = deepcopy(self)
        with torch.no_grad():
            for m in sorted({1, max(1, T // 8), max(1, T // 2), T}):
                copy(x[:, torch.arange(T) % m])
                assert copy.n_cells is not None
                counts[f"first {m}"] = float(copy.n_cells.float().mean())
        values = list(counts.values())
        grows = self.one_cell or values[-1] > values[0]
        never_falls = all(a <= b + 0.05 * b for a, b in pairwise(values))
        return Claim(
            "cells grow with distinct tokens", "growing", counts, None, grows and never_falls
        )

    def _credit_check(self) -> Claim:
        widths = (self.key_width, self.value_width)
        if self.one_cell:
            return credit_check(lambda *c: gated_delta_rule(*c)[0], [1.0], *widths)
        weights: Weights = self.weights

        def rule(q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
            at = torch.zeros(*q.shape[:2], 2, dtype=torch.float64)
            return lattice_rule(at, at, q, k, v, alpha, beta, weights)[0]

        w = spline_neighbourhood(torch.zeros(2, dtype=torch.float64), weights)[1]
        return credit_check(rule, w.tolist(), *widths)

    def _spread_check(self) -> Claim:
        """New lattices of this width, at the published scale, on eight random tokens."""
        per_token = {}
        for std in (None, 0.02):
            with torch_stream(0, "signature"):
                new = Lattice(
                    d_model=self.d_model,
                    causal=True,
                    num_heads=1,
                    addr_scale=_PUBLISHED_ADDR_SCALE,
                    conv_init_std=std,
                )
                new(torch.randn(16, 8, self.d_model))
            assert new.n_cells is not None
            per_token["default" if std is None else str(std)] = (
                float(new.n_cells.float().mean()) / 8
            )
        return Claim(
            "a convolution init of 0.02 collapses the addresses",
            "at least 6 cells a token by default, at most 2 with 0.02",
            per_token,
            None,
            per_token["default"] >= 6 and per_token["0.02"] <= 2,
        )

    def _one_cell_check(self, x: Tensor) -> Claim:
        """With these parameters, capped at one cell, against the gated delta rule's definition."""
        copy = deepcopy(self).double()
        copy.one_cell = True
        x = x[:2].double()
        with torch.no_grad():
            out = copy(x)
            convolved = copy.conv(x)
            q, k, v = copy.content(convolved)
            expected, _ = naive_gated_delta_rule(q, k, v, *copy.gates(convolved))
            expected = copy.out_gate * copy.o_proj(expected.flatten(-2))
        error = float((out - expected).abs().max() / (1 + expected.abs().max()))
        return Claim.close("capped at one cell it is Gated DeltaNet", 0.0, error, 1e-10)
