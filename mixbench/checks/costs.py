"""Checks of what a mixer costs: parameters, operations, growth of time and memory."""

from __future__ import annotations

import math
from functools import partial

import torch

from mixbench.checks.subject import Failed, MixerUnderTest, Skipped, inputs
from mixbench.core.timing import interleaved, peak_memory
from mixbench.mixers.base import Mixer
from mixbench.models.measure import measured_flops

_LENGTHS = (256, 512, 1024, 2048, 4096)


# Seconds of a call after which no longer sequence is tried.
_LONG = 0.2


def parameters(mixer_under_test: MixerUnderTest) -> str:
    """How many parameters it has, of which none is left out of training."""
    mixer = mixer_under_test.mixer()
    frozen = [name for name, p in mixer.named_parameters() if not p.requires_grad]
    if frozen:
        raise Failed(f"no gradient is asked for {', '.join(frozen)}", "requires_grad; a buffer?")
    return f"{sum(p.numel() for p in mixer.parameters()):,} at d_model {mixer.d_model}"


def operations(mixer_under_test: MixerUnderTest) -> str:
    """`operations(T)` does not claim less than half of the matrix products that PyTorch counts."""
    mixer = mixer_under_test.mixer(torch.float32)
    said = []
    for T in sorted({mixer_under_test.length(32), mixer_under_test.length(128)}):
        claimed = mixer.operations(T)
        counted = measured_flops(mixer, inputs(mixer, 1, T, torch.float32)) / T
        if claimed is None:
            raise Skipped(f"operations says nothing; PyTorch counts {counted:,.0f} FLOPs a token")
        numbers = claimed.as_tuple()
        if not all(0 <= number < math.inf for number in numbers):
            raise Failed(f"operations({T}) has {min(numbers)}", "operations()")
        claim = claimed.multiplies + claimed.additions
        # A causal mixer may well compute both triangles where the formula counts one.
        if counted > 2.1 * claim:
            raise Failed(
                f"at T {T} operations claims {claim:,.0f} multiplies and additions a token, "
                f"PyTorch counts {counted:,.0f} FLOPs",
                "operations(): numbers a token, all heads, projections included",
            )
        said.append(f"T {T}: {claim:,.0f} a token, {counted:,.0f} of it counted")
    return "; ".join(said)


def growth(mixer_under_test: MixerUnderTest) -> str:
    """How time, memory and state grow with T: exponents from T 256 on, one row."""
    mixer = mixer_under_test.mixer(torch.float32)
    seconds: dict[int, float] = {}
    memory: dict[int, int | None] = {}
    for T in _LENGTHS:
        call = partial(_forward_and_backward, mixer, T)
        try:
            timing = interleaved({"": call}, 3, _LONG)[""]
        except Exception as error:
            if len(seconds) < 2:
                raise
            return f"{_exponents(mixer, seconds, memory)}; T {T}: {type(error).__name__}"
        seconds[T], memory[T] = timing.fastest, peak_memory(call)
        if timing.fastest > _LONG and len(seconds) > 1:
            break
    return _exponents(mixer, seconds, memory)


def _exponents(mixer: Mixer, seconds: dict[int, float], memory: dict[int, int | None]) -> str:
    lengths = list(seconds)
    said = [f"time T^{_slope(lengths, [seconds[T] for T in lengths]):.2f}"]
    peaks = [memory[T] or 0 for T in lengths]
    if min(peaks[-2:]) > 2**20:  # less is within the allocator's granularity
        said.append(f"memory T^{_slope(lengths, peaks):.2f}")
    sizes = [mixer.state_size(T) or 0 for T in lengths]
    if min(sizes) > 0:
        said.append(f"state T^{_slope(lengths, sizes):.2f}")
    said.append(f"{1e3 * seconds[lengths[-1]]:.0f} ms at T {lengths[-1]}")
    return ", ".join(said)


def _slope(lengths: list[int], values: list[float] | list[int]) -> float:
    """The exponent between the two longest lengths."""
    return math.log(values[-1] / values[-2]) / math.log(lengths[-1] / lengths[-2])


def _forward_and_backward(mixer: Mixer, seq_len: int) -> None:
    x = inputs(mixer, 1, seq_len, torch.float32).requires_grad_()
    mixer(x).square().sum().backward()
