"""The mixers of a model, and what reaches them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mixbench.mixers.base import Mixer


def mixers(model: nn.Module) -> list[Mixer]:
    """The model's mixers, first layer first; one inside another is a part of it, and not listed."""
    found: dict[Mixer, None] = {}
    for child in model.children():
        found |= dict.fromkeys([child] if isinstance(child, Mixer) else mixers(child))
    return list(found)


def mixer_inputs(model: nn.Module, *inputs: Tensor) -> dict[Mixer, Tensor]:
    """What each mixer is first given, `[B, T, D]`, when the model is called on `inputs`.

    In the order of `mixers`; one whose `forward` the model does not call is missing.
    """
    seen: dict[Mixer, Tensor] = {}
    layers = mixers(model)

    def keep(mixer: nn.Module, args: tuple[Tensor, ...]) -> None:
        assert isinstance(mixer, Mixer)
        seen.setdefault(mixer, args[0].detach())

    hooks = [mixer.register_forward_pre_hook(keep) for mixer in layers]
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return {mixer: seen[mixer] for mixer in layers if mixer in seen}
