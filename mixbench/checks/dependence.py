"""Checks of what an output may depend on: time, other rows, earlier calls, the tokens' order."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mixbench.checks.subject import (
    Failed,
    MixerUnderTest,
    Skipped,
    distance,
    inputs,
    largest,
    refuse_without_gradient,
)
from mixbench.core import seeds
from mixbench.mixers.base import SYMMETRIES, Mixer

_ALLOWED = 1e-12


_LEAK = (
    "what sees later tokens: a missing mask, a mean or normalisation over time, padding on both "
    "sides of a convolution, a block taken whole"
)


def causality(mixer_under_test: MixerUnderTest) -> str:
    """Outputs before t stay as they are when the input at t changes (float64, 1e-12)."""
    mixer = mixer_under_test.causal()
    for T in sorted({mixer_under_test.length(33), mixer_under_test.length(130)}):
        x = inputs(mixer, 1, T)
        with torch.no_grad():
            y = mixer(x)
            for t, changed in _changed(x):
                moved = (mixer(changed) - y).abs().amax((0, 2))[:t] / max(1.0, largest(y))
                leaks = (~(moved <= _ALLOWED)).nonzero()
                if len(leaks):
                    first = int(leaks[0])
                    raise Failed(
                        f"the output at {first} moves by {float(moved[first]):.1e} when the input "
                        f"at {t} changes (T {T})",
                        _LEAK,
                    )
    return f"no output moves before its input, T {T}"


def causality_by_gradient(mixer_under_test: MixerUnderTest) -> str:
    """The gradient of the output at t with respect to later inputs is zero."""
    mixer = mixer_under_test.causal()
    T = mixer_under_test.length(33)
    for t, gradient in _gradients(mixer, T, range(T - 1)):
        leaks = (~(gradient[t + 1 :] <= _ALLOWED)).nonzero()
        if len(leaks):
            source = t + 1 + int(leaks[0])
            raise Failed(
                f"the output at {t} has the gradient {float(gradient[source]):.1e} to the input "
                f"at {source} (T {T})",
                _LEAK,
            )
    return f"no gradient to later inputs, T {T}"


def prefix(mixer_under_test: MixerUnderTest) -> str:
    """A prefix alone has the outputs that it has within a longer sequence."""
    mixer = mixer_under_test.causal()
    T = mixer_under_test.length(130)
    x = inputs(mixer, 1, T)
    with torch.no_grad():
        whole = mixer(x)
        for cut in sorted({1, 2, 7, 16, 33, 64, 65, T - 1} & set(range(1, T))):
            error = distance(mixer(x[:, :cut]), whole[:, :cut])
            if not error <= 1e-10:
                raise Failed(
                    f"the first {cut} of {T} tokens alone have outputs that differ by {error:.1e}",
                    "what depends on the length itself: positions, blocks or scales made from T",
                )
    return f"equal to 1e-10, T {T}"


def batch_independence(mixer_under_test: MixerUnderTest) -> str:
    """A row's output depends on no other row."""
    mixer = mixer_under_test.mixer()
    T = mixer_under_test.length(33)
    look = "reductions over axis 0, batch statistics, and views that swap batch and time"
    x = inputs(mixer, 3, T)
    with torch.no_grad():
        y = mixer(x)
        for row in range(3):
            error = distance(mixer(x[row : row + 1])[0], y[row])
            if not error <= 1e-10:
                raise Failed(f"row {row} alone has an output that differs by {error:.1e}", look)
        changed = x.clone()
        changed[0] = 1e3 * changed[0].flip(0) + 1
        error = distance(mixer(changed)[1:], y[1:])
        if not error <= _ALLOWED:
            raise Failed(f"rows 1 and 2 move by {error:.1e} when row 0 changes", look)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(mixer(x)[0].square().sum(), x)
    other = largest(gradient[1:])
    if not other <= _ALLOWED * max(1.0, largest(gradient)):
        raise Failed(f"row 0 has the gradient {other:.1e} to the inputs of other rows", look)
    return "rows alone equal rows together"


def determinism(mixer_under_test: MixerUnderTest) -> str:
    """The same input has the same output to the bit, whatever was drawn or seen before."""
    mixer = mixer_under_test.mixer(torch.float32)
    x = inputs(mixer, 2, mixer_under_test.length(33), torch.float32)
    with torch.no_grad():
        first = mixer(x)
        mixer(inputs(mixer, 3, mixer_under_test.length(17), torch.float32, seed=1))
        with seeds.torch_stream(1, "checks", "other numbers"):
            second = mixer(x)
    if not torch.equal(first, second):
        raise Failed(
            f"a second call differs by {distance(second, first):.1e}",
            "random numbers drawn in evaluation mode, and what one call keeps for the next",
        )
    return "equal to the bit"


def receptive_field(mixer_under_test: MixerUnderTest) -> str:
    """No output depends on inputs beyond the declared receptive field."""
    mixer = mixer_under_test.mixer()
    field = mixer.receptive_field()
    T = mixer_under_test.length(65)
    middle = T - 1 if mixer.causal else T // 2
    ((_, gradient),) = _gradients(mixer, T, [middle])
    seen = (gradient > 1e-14 * max(1e-30, largest(gradient))).nonzero()[:, 0]
    observed = int((seen - middle).abs().max()) if len(seen) else 0
    if field is not None and observed > field:
        raise Failed(
            f"an output depends on an input {observed} tokens away, declared are {field}",
            "receptive_field(), and what widens it: convolutions, blocks",
        )
    said = "no bound declared" if field is None else f"declared are {field}"
    return f"{len(seen)} of {T} inputs, {observed} tokens away at most; {said}"


def symmetries(mixer_under_test: MixerUnderTest) -> str:
    """The declared symmetries hold: permutation, reversal, translation."""
    mixer = mixer_under_test.mixer()
    declared = sorted(mixer.symmetries())
    if not declared:
        raise Skipped("it declares none")
    T = mixer_under_test.length(65)
    x = inputs(mixer, 2, T)
    look = "what depends on the position: positions, convolutions, masks; or symmetries()"
    with torch.no_grad():
        y = mixer(x)
        for name in declared:
            if name not in SYMMETRIES:
                raise Failed(f"{name} is none of {', '.join(SYMMETRIES)}", "symmetries()")
            if name == "translation":
                error = _translation_error(mixer, x, y)
            else:
                order = torch.arange(T).flip(0)
                if name == "permutation":
                    order = torch.from_numpy(seeds.stream(0, "checks", "order").permutation(T))
                error = distance(mixer(x[:, order]), y[:, order])
            if not error <= 1e-10:
                raise Failed(f"{name}: outputs differ by {error:.1e}", look)
    return ", ".join(declared)


def _translation_error(mixer: Mixer, x: Tensor, y: Tensor) -> float:
    """How far outputs that do not see the ends differ when the sequence starts later."""
    field, T = mixer.receptive_field(), x.shape[1]
    if field is None:
        raise Failed("translation without a receptive field", "receptive_field()")
    shift, end = 3, T if mixer.causal else T - field
    if field + shift >= end:
        raise Skipped(f"translation: a receptive field of {field} leaves nothing of {T} tokens")
    shifted = mixer(x[:, shift:])
    return distance(shifted[:, field : end - shift], y[:, field + shift : end])


def _changed(x: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The input with one position changed, little and much; all positions of a short one."""
    T = x.shape[1]
    near = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, T - 1}
    places = range(1, T) if T <= 40 else sorted(near & set(range(1, T)))
    with seeds.torch_stream(0, "checks", "change"):
        noise = torch.randn(x.shape[2], dtype=torch.float64).to(x)
    for t in places:
        for size in (1.0, 1e3):
            changed = x.clone()
            changed[:, t] += size * noise
            yield t, changed


def _gradients(mixer: Mixer, T: int, places: range | list[int]) -> Iterator[tuple[int, Tensor]]:
    """For outputs at some positions, how much every input moves them, `[T]`."""
    x = inputs(mixer, 1, T).requires_grad_()
    y = mixer(x)
    with seeds.torch_stream(0, "checks", "direction"):
        direction = torch.randn(y.shape[2], dtype=torch.float64).to(y)
    refuse_without_gradient(y)
    for t in places:
        along = (y[0, t] * direction).sum()
        gradients = torch.autograd.grad(
            along, x, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        yield t, gradients[0][0].abs().amax(-1)
