"""Checks of what goes in and what comes out: shapes, types, lengths, batches."""

from __future__ import annotations

import torch

from mixbench.checks.subject import Failed, MixerUnderTest, distance, inputs
from mixbench.mixers.base import Mixer


def shape(mixer_under_test: MixerUnderTest) -> str:
    """The output has its input's shape and type, in float32 and float64."""
    seen = []
    for dtype in (torch.float32, torch.float64):
        mixer = mixer_under_test.mixer(dtype)
        x = inputs(mixer, 2, mixer_under_test.length(33), dtype)
        y = mixer(x)
        if not isinstance(y, torch.Tensor):
            raise Failed(f"forward returns {type(y).__name__}", "what forward returns: one tensor")
        if y.shape != x.shape:
            raise Failed(
                f"{tuple(x.shape)} becomes {tuple(y.shape)}",
                "the last projection and how heads are merged",
            )
        if y.dtype != dtype:
            raise Failed(
                f"an input of {_name(dtype)} becomes {_name(y.dtype)}",
                "tensors made inside forward: take dtype and device from the input",
            )
        seen.append(_name(dtype))
    return f"{tuple(x.shape)}, {' and '.join(seen)}"


def input_untouched(mixer_under_test: MixerUnderTest) -> str:
    """The input is left as it is."""
    mixer = mixer_under_test.mixer(copy_inputs=False)
    x = inputs(mixer, 2, mixer_under_test.length(33))
    before = x.clone()
    mixer(x)
    if not torch.equal(x, before):
        where = (x - before).abs().amax((0, 2)).nonzero()[0].item()
        raise Failed(
            f"forward changes its input, first at position {where}",
            "operations that end in _ or write to a slice, before a copy is made",
        )
    return "unchanged"


def length_one(mixer_under_test: MixerUnderTest) -> str:
    """One token makes a finite output of its shape."""
    return _runs(mixer_under_test, 2, [1], "what is divided by: T - 1, a deviation over time")


def odd_lengths(mixer_under_test: MixerUnderTest) -> str:
    """Lengths that no block size divides make finite outputs of their shape."""
    lengths = [T for T in (2, 3, 5, 7, 17, 31, 63, 65, 129) if mixer_under_test.seq_len >= T]
    return _runs(mixer_under_test, 2, lengths, "padding to a block size, and what masks it")


def batch_of_one(mixer_under_test: MixerUnderTest) -> str:
    """A batch of one makes a finite output of its shape."""
    return _runs(
        mixer_under_test,
        1,
        [mixer_under_test.length(33)],
        "squeeze() without an axis; axes taken by size",
    )


def empty_batch(mixer_under_test: MixerUnderTest) -> str:
    """A batch of none makes an output of its shape, backward as well."""
    mixer = mixer_under_test.mixer()
    x = inputs(mixer, 0, mixer_under_test.length(9)).requires_grad_()
    _finite(mixer, x, "reductions over the batch, and reshape(-1) of nothing").sum().backward()
    return f"{tuple(x.shape)}"


def strided_input(mixer_under_test: MixerUnderTest) -> str:
    """A transposed view makes the same output as its copy."""
    mixer = mixer_under_test.mixer()
    x = inputs(mixer, 2, mixer_under_test.length(33))
    view = x.transpose(0, 1).contiguous().transpose(0, 1)
    error = distance(mixer(view), mixer(x))
    if not error <= 1e-12:
        raise Failed(f"outputs differ by {error:.1e}", "kernels that assume contiguous memory")
    return "equal"


def _runs(mixer_under_test: MixerUnderTest, batch: int, lengths: list[int], hint: str) -> str:
    mixer = mixer_under_test.mixer()
    for T in lengths:
        _finite(mixer, inputs(mixer, batch, T), hint)
    return f"T {', '.join(map(str, lengths))}, batch {batch}"


def _finite(mixer: Mixer, x: torch.Tensor, hint: str) -> torch.Tensor:
    y = mixer(x)
    if y.shape != x.shape:
        raise Failed(f"{tuple(x.shape)} becomes {tuple(y.shape)}", hint)
    bad = (~y.isfinite()).nonzero()
    if len(bad):
        b, t, d = bad[0].tolist()
        raise Failed(
            f"{tuple(x.shape)}: {float(y[b, t, d].detach())} at row {b}, position {t}", hint
        )
    return y


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
