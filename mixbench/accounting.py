"""What a mixer costs: arithmetic by formula, state held, and FLOPs as PyTorch counts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

if TYPE_CHECKING:
    from mixbench.mixers.mixer import Mixer


@dataclass(frozen=True)
class Operations:
    """Scalar operations by kind.

    A division counts as a multiply; an absolute difference is one operation, its subtraction
    included; what is folded into per-token factors (a scale of the scores, say) counts there.
    """

    multiplies: float = 0
    additions: float = 0
    absolute_differences: float = 0
    exponentials: float = 0

    def __add__(self, other: Operations) -> Operations:
        return Operations(*(a + b for a, b in zip(self.as_tuple(), other.as_tuple(), strict=True)))

    def __mul__(self, times: float) -> Operations:
        return Operations(*(a * times for a in self.as_tuple()))

    def as_tuple(self) -> tuple[float, ...]:
        return tuple(asdict(self).values())

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def linear(d_in: int, d_out: int, bias: bool = True) -> Operations:
    """One row through a linear layer."""
    return Operations(multiplies=d_in * d_out, additions=d_in * d_out - (0 if bias else d_out))


def dot(width: int) -> Operations:
    """A dot product."""
    return Operations(multiplies=width, additions=width - 1)


def sigmoid() -> Operations:
    """`1 / (1 + exp(-x))`."""
    return Operations(multiplies=1, additions=1, exponentials=1)


def softmax_entry() -> Operations:
    """One entry of a softmax: subtract the maximum, exponentiate, sum, divide."""
    return Operations(multiplies=1, additions=2, exponentials=1)


def weighted_sum(width: int) -> Operations:
    """One entry of a weighted sum of vectors."""
    return Operations(multiplies=width, additions=width)


def counted_flops(function: Callable[..., object], *inputs: Tensor) -> int:
    """FLOPs of one call, such as a module's forward pass, by PyTorch's counter.

    It sees matrix products, and what operators of ours say of themselves.

    Fused attention, which it does not see on a CPU, is counted in its plain form.
    """
    plain = sdpa_kernel(SDPBackend.MATH)
    with torch.no_grad(), plain, FlopCounterMode(display=False) as counter:
        function(*inputs)
    return counter.get_total_flops()


def streamed_state(mixer: Mixer, x: Tensor) -> int | None:
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
    return held(state)


def held(state: Any) -> int:
    """Numbers in all tensors of a nested state, a batch's rows counted together."""
    if hasattr(state, "numel"):  # a tensor, or something that grows (`mixbench.mixers.streaming`)
        return int(state.numel())
    if isinstance(state, dict):
        return sum(held(value) for value in state.values())
    if isinstance(state, (list, tuple)):
        return sum(held(value) for value in state)
    return 0
