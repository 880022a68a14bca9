"""The short convolution as shifted adds against PyTorch's grouped convolution."""

from __future__ import annotations

import pytest
import torch

from mixbench.ops.short_convolution import naive_short_convolution, short_convolution


@pytest.mark.parametrize("W", [1, 2, 4, 7])
@pytest.mark.parametrize("T", [1, 2, 3, 33])
def test_shifted_adds_equal_the_definition(T, W):
    shapes = ((2, T, 5), (5, W), (5,))
    inputs = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    slow, fast = (form(*inputs) for form in (naive_short_convolution, short_convolution))
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-10)
    weight = torch.linspace(-1, 1, slow.numel(), dtype=torch.float64).view_as(slow)
    for one, other in zip(
        torch.autograd.grad((slow * weight).sum(), inputs),
        torch.autograd.grad((fast * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(other, one, rtol=0, atol=1e-9)


def test_narrow_inputs_are_taken_at_the_parameters_precision():
    x = torch.randn(1, 6, 3).bfloat16()
    out = short_convolution(x, torch.ones(3, 2), torch.zeros(3))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out[:, 1:], x.float()[:, 1:] + x.float()[:, :-1])


def test_empty_sequence():
    assert short_convolution(torch.zeros(2, 0, 3), torch.ones(3, 4), torch.ones(3)).shape == (
        2,
        0,
        3,
    )
