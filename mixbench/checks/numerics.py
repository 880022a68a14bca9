"""Checks of numbers: precision, range, scale, lengths beyond those made for."""

from __future__ import annotations

import torch

from mixbench.checks.subject import (
    Failed,
    MixerUnderTest,
    gradients_of,
    inputs,
    largest,
    weights_like,
)


def precision(mixer_under_test: MixerUnderTest) -> str:
    """Float32 gives what float64 gives, to 1e-3 of the largest output, gradients to 1e-2."""
    exact, x = _run(mixer_under_test, torch.float64)
    rough, z = _run(mixer_under_test, torch.float32)
    errors = []
    for name, a, b, allowed in (("outputs", rough, exact, 1e-3), ("gradients", z, x, 1e-2)):
        error = largest(a.double() - b) / max(1e-30, largest(b))
        if not error <= allowed:
            raise Failed(
                f"{name} differ by {error:.1e} of the largest one",
                "differences of large numbers, long products, inverses; do these in float64",
            )
        errors.append(f"{name} {error:.1e}")
    return ", ".join(errors)


def bfloat16(mixer_under_test: MixerUnderTest) -> str:
    """It runs under bfloat16 autocast, as `dtype=bfloat16` does, and stays finite."""
    mixer = mixer_under_test.mixer(torch.float32)
    x = inputs(mixer, 2, mixer_under_test.length(33), torch.float32).requires_grad_()
    exact = mixer(x.detach())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = mixer(x)
    (y.float() * weights_like(exact)).sum().backward()
    assert x.grad is not None
    if not (y.isfinite().all() and x.grad.isfinite().all()):
        raise Failed(
            "outputs or gradients are not finite",
            "masks filled with numbers beyond the type, sums of many exponentials",
        )
    error = largest(y.float() - exact) / max(1e-30, largest(exact))
    return f"error {error:.1e} of the largest output"


def input_scales(mixer_under_test: MixerUnderTest) -> str:
    """Inputs of 1e-3 to 1e3 times the usual size leave outputs and gradients finite."""
    mixer = mixer_under_test.mixer(torch.float32)
    for scale in (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3):
        x = scale * inputs(mixer, 2, mixer_under_test.length(33), torch.float32)
        y, gradients = gradients_of(mixer, x)
        tensors: dict[str, torch.Tensor | None] = {"the output": y}
        tensors |= {f"the gradient of {name}": each for name, each in gradients.items()}
        for name, tensor in tensors.items():
            if tensor is not None and not tensor.isfinite().all():
                raise Failed(
                    f"{name} is not finite for inputs of size {scale:g}",
                    "exponentials without a maximum taken off, products along time, divisions",
                )
    return "finite for 1e-3 to 1e3"


def initial_scale(mixer_under_test: MixerUnderTest) -> str:
    """A new mixer's output is finite and at most 100 times as large as its input."""
    mixer = mixer_under_test.mixer(torch.float32, perturbed=False)
    x = inputs(mixer, 4, mixer_under_test.length(64), torch.float32)
    with torch.no_grad():
        ratio = float(mixer(x).square().mean().sqrt() / x.square().mean().sqrt())
    if not ratio <= 100:
        raise Failed(
            f"the output is {ratio:.3g} times the input (root mean square)",
            "initial weights, sums over time that want a mean or a norm",
        )
    return "it starts silent" if ratio == 0 else f"{ratio:.3g} times the input (rms)"


def extrapolation(mixer_under_test: MixerUnderTest) -> str:
    """It runs at four times the length that it is made for, and stays finite."""
    mixer = mixer_under_test.mixer(torch.float32)
    T = 4 * mixer_under_test.seq_len
    with torch.no_grad():
        y = mixer(inputs(mixer, 1, T, torch.float32))
    bad = (~y.isfinite()).any(-1)[0].nonzero()
    if len(bad):
        raise Failed(
            f"not finite from position {int(bad[0])} of {T}", "sums and products along time"
        )
    return f"T {T}"


def _run(mixer_under_test: MixerUnderTest, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and the input's gradient."""
    mixer = mixer_under_test.mixer(dtype)
    y, gradients = gradients_of(mixer, inputs(mixer, 2, mixer_under_test.length(130), dtype))
    gradient = gradients["the input"]
    assert gradient is not None
    return y, gradient
