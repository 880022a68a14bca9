"""The mixers of a model, and what reaches them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mixbench.mixers.base import Mixer


def mixers(model: nn.Module) -> list[Mixer]:
    """The model's mixers, first layer first."""
    return [module for module in model.modules() if isinstance(module, Mixer)]


def n_cells(model: nn.Module) -> int | None:
    """Memory cells in the fullest layer and sequence of the last batch; None without cells."""
    counts = [
        int(m.n_cells.max()) for m in mixers(model) if m.n_cells is not None and m.n_cells.numel()
    ]
    return max(counts, default=None)


def mixer_inputs(model: nn.Module, *inputs: Tensor) -> list[Tensor]:
    """What each mixer is given, `[B, T, D]`, when the model is called on `inputs`."""
    seen: list[Tensor] = []
    hooks = [
        mixer.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
        for mixer in mixers(model)
    ]
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return seen
