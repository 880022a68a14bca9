"""Checks of the streaming form: it gives what the parallel form gives, and holds what it says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mixbench.checks.subject import Failed, MixerUnderTest, Skipped, distance, inputs
from mixbench.mixers.base import Mixer
from mixbench.models.measure import count_elements


def streaming(mixer_under_test: MixerUnderTest) -> str:
    """Token by token, a causal mixer gives what it gives in parallel."""
    mixer = mixer_under_test.causal()
    T = mixer_under_test.length(130)
    x = inputs(mixer, 2, T)
    with torch.no_grad():
        whole = mixer(x)
        state = _start(mixer, 2)
        for t in range(T):
            y, state = mixer.step(x[:, t], state)
            _compare(y, whole[:, t], f"step {t} of a stream")
    return f"equal to 1e-9, T {T}"


def streaming_from_every_split(mixer_under_test: MixerUnderTest) -> str:
    """A stream that stops anywhere goes on from its state, more than once."""
    mixer = mixer_under_test.causal()
    T = mixer_under_test.length(17)
    x = inputs(mixer, 2, T)
    with torch.no_grad():
        whole = mixer(x)
        states = [_start(mixer, 2)]
        for t in range(T):
            states.append(mixer.step(x[:, t], states[-1])[1])
        for split in range(T):
            state = states[split]
            for t in range(split, T):
                y, state = mixer.step(x[:, t], state)
                _compare(y, whole[:, t], f"step {t} of a stream that goes on from {split}")
    return f"from each of {T} states"


def state_size(mixer_under_test: MixerUnderTest) -> str:
    """`state_size(T)` is what the streaming form holds after T tokens."""
    mixer = mixer_under_test.causal()
    T = mixer_under_test.length(65)
    x = inputs(mixer, 1, T)
    said = mixer.state_size(T)
    with torch.no_grad():
        state = _start(mixer, 1)
        for t in range(T):
            _, state = mixer.step(x[:, t], state)
            claimed, found = mixer.state_size(t + 1), count_elements(state)
            if claimed is None:
                continue
            if found > claimed or (found < claimed and not mixer.state_size_is_bound):
                raise Failed(
                    f"after {t + 1} tokens state_size says {claimed:,} and {found:,} are held",
                    "what init_state and step keep: every tensor counts, once a sequence",
                )
    if said is None:
        raise Skipped(
            f"state_size says nothing; {count_elements(state):,} numbers are held after {T} tokens"
        )
    bound = "of at most " if mixer.state_size_is_bound else "= "
    return f"{count_elements(state):,} {bound}{said:,} after {T} tokens"


def _start(mixer: Mixer, batch: int) -> Any:
    try:
        return mixer.init_state(batch)
    except NotImplementedError:
        raise Skipped("it has no streaming form (init_state and step)") from None


def _compare(y: Tensor, expected: Tensor, what: str) -> None:
    if y.shape != expected.shape:
        raise Failed(f"{what} gives {tuple(y.shape)}", "what step returns: `[B, D]` and a state")
    error = distance(y, expected)
    if not error <= 1e-9:
        raise Failed(
            f"{what} differs by {error:.1e} from the parallel form",
            "what step keeps and in which order; a state that is written to in place",
        )
