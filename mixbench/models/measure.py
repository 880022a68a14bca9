"""Costs as measured: FLOPs that PyTorch counts, and numbers that a streaming state holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

if TYPE_CHECKING:
    from mixbench.mixers.base import Mixer


def measured_flops(function: Callable[..., object], *inputs: Tensor) -> int:
    """FLOPs of one call, such as a module's forward pass, by PyTorch's counter.

    It sees matrix products, and what operators of ours say of themselves.

    Fused attention, which it does not see on a CPU, is counted in its plain form.
    """
    plain = sdpa_kernel(SDPBackend.MATH)
    with torch.no_grad(), plain, FlopCounterMode(display=False) as counter:
        function(*inputs)
    return counter.get_total_flops()


def measured_state_size(mixer: Mixer, x: Tensor) -> int | None:
    """Numbers that a mixer's streaming form holds after one sequence `[1, T, D]`.

    None for a mixer that has none.
    """
    try:
        state = mixer.init_state(1)
    except NotImplementedError:
        return None
    with torch.no_grad():
        for t in range(x.shape[1]):
            _, state = mixer.step(x[:, t], state)
    return count_elements(state)


def count_elements(state: Any) -> int:
    """Numbers in all tensors of a nested state, a batch's rows counted together."""
    if hasattr(
        state, "numel"
    ):  # a tensor, or something that grows (`mixbench.mixers.parts.caches`)
        return int(state.numel())
    if isinstance(state, dict):
        return sum(count_elements(value) for value in state.values())
    if isinstance(state, (list, tuple)):
        return sum(count_elements(value) for value in state)
    return 0
