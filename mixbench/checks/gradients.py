"""Checks of gradients: that they arrive, and that they are right."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mixbench.checks.subject import (
    Failed,
    MixerUnderTest,
    gradients_of,
    inherited_exceptions,
    inputs,
    largest,
    trained_parameters,
    weights_like,
)
from mixbench.core import seeds
from mixbench.mixers.base import Mixer

# A gradient that is this small beside the largest one is rounding.
_NOTHING = 1e-12


def gradients_arrive(mixer_under_test: MixerUnderTest) -> str:
    """Every parameter and the input get a finite gradient, at the latest after one step."""
    mixer = mixer_under_test.mixer(perturbed=False)
    declared = set(mixer.exceptions())
    known = declared | set(inherited_exceptions(mixer))
    x = inputs(mixer, 4, mixer_under_test.seq_len)
    first = _silent(mixer, x)
    with torch.no_grad():
        for parameter in mixer.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad.sign(), alpha=1e-2)  # as Adam's first step does
    dead = [name for name in _silent(mixer, x) if name in first]
    unknown = [name for name in dead if name not in known]
    if unknown:
        raise Failed(
            f"no gradient for {', '.join(unknown)}, before and after a step",
            "what forward does not use, detaches, multiplies by zero, or a softmax cancels",
        )
    parameters = {name for name, _ in mixer.named_parameters()}
    stale = [name for name in declared & parameters if name not in dead]
    if stale:
        raise Failed(f"{', '.join(stale)} is excepted, yet has a gradient", "exceptions()")
    late = [name for name in first if name not in dead]
    notes = [f"only after a step: {', '.join(late)}"] if late else []
    notes += [f"never, as declared: {', '.join(dead)}"] if dead else []
    return "; ".join(["all finite", *notes])


def finite_differences(mixer_under_test: MixerUnderTest) -> str:
    """Gradients equal central differences in float64, for the input and every parameter."""
    mixer = mixer_under_test.mixer()
    T = mixer_under_test.length(9)
    x = inputs(mixer, 2, T)
    tensors = {"the input": x, **trained_parameters(mixer)}
    with torch.no_grad():
        weights = weights_like(mixer(x))

    def value() -> Tensor:
        return (mixer(x) * weights).sum()

    x.requires_grad_()
    found = torch.autograd.grad(value(), list(tensors.values()), allow_unused=True)
    worst = 0.0
    for (name, tensor), gradient in zip(tensors.items(), found, strict=True):
        with seeds.torch_stream(0, "checks", "direction", name):
            direction = torch.randn(tensor.shape, dtype=torch.float64)
        direction /= direction.norm().clamp_min(1e-30)
        exact = 0.0 if gradient is None else float((gradient * direction).sum())
        # A kink between the two points, or rounding, spoils some step widths, never all.
        error = min(_error(value, tensor, direction, exact, width) for width in (1e-4, 1e-5, 1e-6))
        worst = max(worst, error)
        if not error <= 1e-6:
            raise Failed(
                f"{name}: the gradient along a random direction is off by {error:.1e}, relatively",
                "a backward of your own, detach(), and in-place changes of what is saved",
            )
    return f"largest error {worst:.1e}"


def _error(
    value: Callable[[], Tensor], tensor: Tensor, direction: Tensor, exact: float, width: float
) -> float:
    """How far a central difference of some width is from the derivative along a direction."""
    with torch.no_grad():
        tensor += width * direction
        above = float(value())
        tensor -= 2 * width * direction
        below = float(value())
        tensor += width * direction
    measured = (above - below) / (2 * width)
    return abs(measured - exact) / max(1.0, abs(exact))


def _silent(mixer: Mixer, x: Tensor) -> list[str]:
    """Who gets no gradient beyond rounding; what gets one that is not finite fails at once."""
    _, gradients = gradients_of(mixer, x)
    sizes = {name: 0.0 if g is None else largest(g) for name, g in gradients.items()}
    for name, size in sizes.items():
        if not size < float("inf"):
            raise Failed(
                f"the gradient of {name} is not finite",
                "square roots, norms and divisions at zero, logarithms, exponentials that overflow",
            )
    bound = _NOTHING * max(sizes.values())
    return [name for name, size in sizes.items() if size <= bound]
