"""RMS norm and SwiGLU's gated unit: compiled kernels against PyTorch's composition."""

from __future__ import annotations

import pytest
import torch

from mixbench.ops.layers import naive_rms_norm, naive_silu_product, rms_norm, silu_product

F64 = torch.float64


def assert_same(fast, naive, inputs):
    """Values to 1e-10 and gradients to 1e-9 in float64, 1e-5 and 1e-4 in float32."""
    slow = naive(*inputs)
    weight = torch.linspace(-1, 1, slow.numel(), dtype=F64).view_as(slow)
    grads = torch.autograd.grad((slow * weight).sum(), inputs)
    for dtype, atol in ((F64, 1e-10), (torch.float32, 1e-5)):
        cast = [x.detach().to(dtype).requires_grad_() for x in inputs]
        out = fast(*cast)
        assert out.dtype == dtype
        torch.testing.assert_close(out.to(F64), slow, rtol=0, atol=atol)
        for one, other in zip(torch.autograd.grad((out * weight).sum(), cast), grads, strict=True):
            scale = 1 + other.norm()
            torch.testing.assert_close(one / scale, other / scale, rtol=0, atol=10 * atol,
                                       check_dtype=False)  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 3, 64), (300, 6), (0, 4)])
def test_rms_norm_equals_the_definition(shape):
    x = torch.randn(*shape, dtype=F64, requires_grad=True)
    weight = torch.randn(shape[-1], dtype=F64, requires_grad=True)
    assert_same(lambda *a: rms_norm(*a, 1e-6), lambda *a: naive_rms_norm(*a, 1e-6), [x, weight])


@pytest.mark.parametrize("shape", [(1, 2), (3, 10), (2, 3, 64), (7, 96), (0, 4)])
def test_silu_product_equals_the_definition(shape):
    x = (3 * torch.randn(*shape, dtype=F64)).requires_grad_()
    assert_same(silu_product, naive_silu_product, [x])


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_silu_keeps_its_digits_wherever_it_is_taken(dtype):
    gate = torch.cat([torch.linspace(-80, 80, 3201, dtype=dtype), torch.zeros(15, dtype=dtype)])
    x = torch.stack([gate, torch.ones_like(gate)]).view(2, -1, 16).transpose(0, 1).flatten(1)
    exact = naive_silu_product(x.to(F64))
    error = (silu_product(x).to(F64) - exact).abs() / exact.abs().clamp(min=1e-300)
    assert error[exact != 0].max() < 8 * torch.finfo(dtype).eps


def test_numbers_that_are_not_finite_stay_so():
    x = torch.tensor([[torch.nan, torch.inf, -torch.inf, 1e30, 1.0, 1.0, 1.0, 1.0]])
    assert silu_product(x).isfinite().tolist() == [[False, False, False, True]]
    assert silu_product(x)[0, 3] == 1e30
    assert rms_norm(x, torch.ones(8), 1e-6).isnan().any()


def test_a_norm_whose_squares_overflow_has_no_gradient():
    """Its values are PyTorch's, zero; a gradient of zero would hide that the run has diverged."""
    x = torch.full((2, 4), 1e25, requires_grad=True)
    weight = torch.ones(4, requires_grad=True)
    out = rms_norm(x, weight, 1e-6)
    assert torch.equal(out, naive_rms_norm(x, weight, 1e-6))
    assert not any(grad.isfinite().any() for grad in torch.autograd.grad(out.sum(), [x, weight]))


def test_number_of_threads_changes_no_bit():
    x = torch.randn(1000, 8, requires_grad=True)
    weight = torch.randn(8, requires_grad=True)
    results = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            out = silu_product(rms_norm(x, weight, 1e-6))
            results.append([out, *torch.autograd.grad(out.square().sum(), [x, weight])])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_torch_compile_sees_the_composition_instead():
    """It fuses what it sees; a kernel would be a wall to it."""
    x, weight = torch.randn(4, 8), torch.randn(8)
    seen = []

    def backend(graph, inputs):
        seen.extend(getattr(node.target, "__name__", "") for node in graph.graph.nodes)
        return graph.forward

    compiled = torch.compile(lambda x: silu_product(rms_norm(x, weight, 1e-6)), backend=backend)
    out = compiled(x)
    torch.testing.assert_close(out, silu_product(rms_norm(x, weight, 1e-6)))
    assert {"rms_norm", "silu"} <= set(seen)
