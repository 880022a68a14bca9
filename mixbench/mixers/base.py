"""What every sequence mixer is, and the checks its constructor arguments share."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor, nn

from mixbench.core.configured import Configured
from mixbench.core.errors import SettingError, at_least
from mixbench.mixers.claims import Claim
from mixbench.mixers.cost import Operations

SYMMETRIES = ("permutation", "reversal", "translation")
"""What a mixer may declare of itself, see `Mixer.symmetries`."""


class Mixer(Configured, nn.Module):
    """A layer that mixes information along time, `[B, T, D] -> [B, T, D]`, without a residual.

    A subclass names `d_model`, `causal` and its own knobs in its constructor (no `**kwargs`: the
    constructor's arguments are the configuration's keys) and implements `forward`. The other
    methods are optional: what a mixer does not say is shown as unknown.

    Special initial values: put them in `reset_parameters()` and call it at the end of the
    constructor. mixbench then draws every layer inside from a stream named after its path and calls
    `reset_parameters()` last, so that parameters shared by name and shape with another mixer start
    equal. A mixer without `reset_parameters` keeps exactly what its constructor made.

    Args:
        d_model: Model width D.
        causal: Whether the output at t may depend on inputs up to t only.
    """

    state_size_is_bound = False
    """Whether `state_size` is the most that can be held, what is held depending on the tokens."""

    def __init__(self, *, d_model: int, causal: bool) -> None:
        super().__init__()
        at_least("d_model", d_model, 1)
        self.d_model = d_model
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        """`[B, T, D] -> [B, T, D]`."""
        raise NotImplementedError

    def state_size(self, seq_len: int) -> int | None:
        """Numbers held a sequence after `seq_len` tokens when streaming."""
        return None

    def conv_state_size(self) -> int:
        """The part of `state_size` that a short convolution holds."""
        return 0

    def operations(self, seq_len: int) -> Operations | None:
        """Scalar operations a token, averaged over a sequence of `seq_len`, by formula."""
        return None

    def pair_operations(self) -> Operations | None:
        """Operations of one query-key score of one head; None where there are no such pairs."""
        return None

    def receptive_field(self) -> int | None:
        """How many tokens away an input can be that an output depends on; None for no bound."""
        return None

    def symmetries(self) -> Collection[str]:
        """Which of `SYMMETRIES` hold, for `mixbench check`.

        `permutation` and `reversal`: tokens in another order have their outputs in that order.
        `translation`: outputs whose receptive field lies within the sequence do not depend on where
        in it they are.
        """
        return ()

    def exceptions(self) -> Mapping[str, str]:
        """What `mixbench check` finds that is by design, and why.

        By the name of the check, or of a parameter that gets no gradient.
        """
        return {}

    def diagnostics(self) -> dict[str, float]:
        """Numbers about itself after a forward pass, logged by epoch: gates, norms, cells in use.

        Over layers and batches a name that starts with `max_` or `min_` is taken at its largest or
        smallest, any other one on average. The same names at every call.
        """
        return {}

    def signature(self, x: Tensor) -> list[Claim]:
        """What this mixer predicts about itself, checked on the inputs `[B, T, D]` it met."""
        return []

    def init_state(self, batch: int) -> Any:
        """The state before the first token, for `step`.

        Raises:
            NotImplementedError: The mixer has no streaming form.
        """
        raise NotImplementedError(f"{type(self).__name__} has no streaming form")

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One token `[B, D]` after another: its output `[B, D]` and the new state.

        The given state is left as it is, so that a stream can be continued from it twice.
        """
        raise NotImplementedError(f"{type(self).__name__} has no streaming form")


def inverse_softplus(value: float) -> float:
    """x with `softplus(x) = value` for a positive value, in a form that does not overflow."""
    return value + math.log(-math.expm1(-value))


def head_width(d_model: int, num_heads: int) -> int:
    """`d_model / num_heads`, refusing head numbers that do not divide it."""
    at_least("num_heads", num_heads, 1)
    if d_model % num_heads:
        divisors = [str(h) for h in range(1, d_model + 1) if d_model % h == 0]
        raise SettingError(
            "num_heads",
            expected=f"a divisor of d_model={d_model}",
            got=num_heads,
            fix=f"choose one of {', '.join(divisors)}, or another model.d_model",
        )
    return d_model // num_heads
