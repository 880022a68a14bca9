"""Mixers, and their streaming forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mixbench.bench.rows import Effort, Row, compared_rows, one_row, timed
from mixbench.core import seeds
from mixbench.mixers.base import Mixer

_STEPS = 20  # of a stream, timed together


Build = Callable[[str, int], Mixer]


def every_mixer(build: Build, names: Sequence[str], effort: Effort) -> Iterator[Row]:
    """All mixers on equal inputs, causal; ratios are to dense attention.

    Args:
        build: Makes a mixer from its name and T.
        names: Choices of the `mixer` group.
        effort: How much.
    """
    for T in effort.lengths:
        B = max(1, effort.tokens // T)
        with seeds.torch_stream(0, "bench", "mixers", T):
            built = {name: build(name, T) for name in names}
            x = torch.randn(B, T, built[names[0]].d_model).requires_grad_()
        calls: dict[str, Callable[[], Tensor]] = {
            name: partial(mixer, x) for name, mixer in built.items()
        }
        leaves = [x, *(p for mixer in built.values() for p in mixer.parameters())]
        yield from compared_rows("mixers", calls, leaves, T, B, ("attention",), effort)


def streaming(build: Build, names: Sequence[str], effort: Effort) -> Iterator[Row]:
    """One step after a context; ratios are the same mixer's shortest context's time to it."""
    for name in names:
        mixer = build(name, 2 * max(effort.contexts))
        try:
            state = mixer.init_state(1)
        except NotImplementedError:
            continue
        shortest: float | None = None
        seen = 0
        for context in sorted(effort.contexts):
            with torch.no_grad(), seeds.torch_stream(0, "bench", "streaming", context):
                for x in torch.randn(max(0, context - seen), 1, mixer.d_model):
                    _, state = mixer.step(x, state)
                stream = _Stream(mixer, torch.randn(1, mixer.d_model), state)
                timing = timed(stream.some_steps, effort).times(1 / _STEPS)
                state, seen = stream.state, context + stream.steps
            shortest = shortest or timing.median
            ratio = {"its shortest context": shortest / timing.median}
            yield one_row("streaming", name, "step", context, timing, "tokens", 1, ratio)


class _Stream:
    """Goes on stepping: each step from the state that the one before left."""

    def __init__(self, mixer: Mixer, token: Tensor, state: Any) -> None:
        self.mixer = mixer
        self.token = token
        self.state = state
        self.steps = 0

    def some_steps(self) -> None:
        for _ in range(_STEPS):
            _, self.state = self.mixer.step(self.token, self.state)
        self.steps += _STEPS
