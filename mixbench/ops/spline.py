"""The nine cells around an address and their quadratic B-spline weights."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Weights = Literal["unit", "partition"]


ReadMode = Literal["all", "nearest"]


def spline_neighbourhood(address: Tensor, weights: Weights = "unit") -> tuple[Tensor, Tensor]:
    """The 3 x 3 cells around an address and their weights.

    Per axis, at `f = address - round(address)`, the quadratic B-spline
    `((1/2 - f)^2 / 2, 3/4 - f^2, (1/2 + f)^2 / 2)`, which sums to one (`partition`), or the same
    scaled to unit L2 norm (`unit`: reading where one wrote returns the value with gain one).

    Args:
        address: Addresses `[..., 2]`.
        weights: `unit` or `partition`.

    Returns:
        Cell coordinates, whole numbers in the address's dtype, `[..., 9, 2]`, and weights
        `[..., 9]`. Gradients reach the address through the weights only.
    """
    centre = address.detach().round()
    f = address - centre
    spline = torch.stack([(0.5 - f) ** 2 / 2, 0.75 - f**2, (0.5 + f) ** 2 / 2], dim=-1)
    if weights == "unit":
        spline = spline / spline.norm(dim=-1, keepdim=True)
    w = spline[..., 0, :, None] * spline[..., 1, None, :]  # [..., 3, 3]
    step = torch.tensor([-1.0, 0.0, 1.0], dtype=address.dtype, device=address.device)
    offsets = torch.cartesian_prod(step, step)  # [9, 2], x outer as in w
    return centre[..., None, :] + offsets, w.flatten(-2)


def read_neighbourhood(
    address: Tensor, weights: Weights, read_mode: ReadMode
) -> tuple[Tensor, Tensor]:
    """The cells that a read address reads and their weights, as in `spline_neighbourhood`."""
    if read_mode == "all":
        return spline_neighbourhood(address, weights)
    centre = address.detach().round()
    return centre[..., None, :], torch.ones_like(address[..., :1])
