"""Laplacian, window and spiderweb ops: golden values, and fast forms against definitions."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from mixbench.ops.laplacian_attention import (
    l1_distance,
    laplacian_attention,
    laplacian_logits,
    naive_laplacian_logits,
)
from mixbench.ops.spiderweb import (
    Projections,
    _causal_update,
    naive_spiderweb,
    num_levels,
    spiderweb_update,
)
from mixbench.ops.spiderweb_levels import prefix_levels
from mixbench.ops.window_attention import naive_window_attention, window_attention, window_weights

F64 = torch.float64


def identity(d_model: int) -> Projections:
    eye, zero = torch.eye(d_model, dtype=F64), torch.zeros(3 * d_model, dtype=F64)
    return Projections(1, eye.repeat(3, 1), zero, eye, zero[:d_model])


SPIDERWEB_FILES = ["n2_d8_r1_eta2", "n7_d8_r1_eta2", "n16_d8_r1_eta2", "n33_d8_r2_eta2",
                   "n27_d6_r1_eta3"]  # fmt: skip


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=F64).requires_grad_()


def assert_same(fast, naive, inputs, atol=1e-10):
    """Values to 1e-10 and gradients to 1e-9."""
    results = []
    for form in (naive, fast):
        out = form(*inputs)
        weight = torch.linspace(-1, 1, out.numel(), dtype=F64).reshape(out.shape)
        results.append((out, torch.autograd.grad((out * weight).sum(), inputs)))
    (slow_out, slow_grads), (fast_out, fast_grads) = results
    torch.testing.assert_close(fast_out, slow_out, rtol=0, atol=atol)
    for slow, quick in zip(slow_grads, fast_grads, strict=True):
        torch.testing.assert_close(quick, slow, rtol=0, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("T", [1, 2, 3, 63, 65])
def test_laplacian_equals_the_broadcast_definition(T, causal):
    q, k = draw(2, 2, T, 5), draw(2, 2, T, 5, seed=1)
    sigma = torch.tensor([0.3, 1.4], dtype=F64, requires_grad=True)
    assert_same(
        lambda *x: laplacian_logits(*x, causal).softmax(-1),
        lambda *x: naive_laplacian_logits(*x, causal).softmax(-1),
        [q, k, sigma],
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("T", [1, 2, 3, 16, 63, 65])
def test_laplacian_attention_equals_the_definition(T, causal):
    q, k, v = draw(2, 2, T, 5), draw(2, 2, T, 5, seed=1), draw(2, 2, T, 3, seed=2)
    sigma = torch.tensor([0.3, 1.4], dtype=F64, requires_grad=True)
    assert_same(
        lambda q, k, v, s: laplacian_attention(q, k, v, s, causal),
        lambda q, k, v, s: naive_laplacian_logits(q, k, s, causal).softmax(-1) @ v,
        [q, k, v, sigma],
    )


@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 40), (17, 16), (33, 31), (48, 5)])
def test_l1_distance_equals_the_definition(T, S):
    assert_same(
        l1_distance,
        lambda q, k: (q[:, :, None] - k[:, None]).abs().sum(-1),
        [draw(3, T, 7), draw(3, S, 7, seed=1)],
    )


def test_l1_distance_of_equal_rows_has_gradient_zero():
    x = draw(1, 20, 4).detach()
    q, k = x.clone().requires_grad_(), x.clone().requires_grad_()
    grads = torch.autograd.grad(l1_distance(q, k).diagonal(dim1=-2, dim2=-1).sum(), [q, k])
    assert not any(grad.any() for grad in grads)


@pytest.mark.parametrize("causal", [False, True])
def test_laplacian_attention_in_float32_stays_close(causal):
    inputs = [*(draw(1, 2, 100, 32, seed=s) for s in range(3))]
    inputs.append(torch.tensor([0.35, 1.4], dtype=F64, requires_grad=True))
    narrow = [x.detach().float().requires_grad_() for x in inputs]
    q, k, v, sigma = inputs
    exact = naive_laplacian_logits(q, k, sigma, causal).softmax(-1) @ v
    single = laplacian_attention(*narrow, causal)
    torch.testing.assert_close(single.double(), exact, rtol=0, atol=1e-5)
    for slow, fast in zip(
        torch.autograd.grad(exact.square().sum(), inputs),
        torch.autograd.grad(single.square().sum(), narrow),
        strict=True,
    ):
        scale = slow.abs().max()
        torch.testing.assert_close(fast.double() / scale, slow / scale, rtol=0, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_laplacian_attention_keeps_two_square_buffers_at_most(causal):
    """Forward and backward, as PyTorch's allocator sees it; other tensors are 1/64 of a square."""
    T = 512
    q, k, v = (draw(1, 1, T, 8, seed=s).detach().float().requires_grad_() for s in range(3))
    sigma = torch.ones(1, requires_grad=True)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        laplacian_attention(q, k, v, sigma, causal).sum().backward()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    sizes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
    peak = max(itertools.accumulate(sizes))
    assert 1 <= peak / (4 * T * T) <= 2.5


def test_l1_distance_keeps_the_rules_of_pytorch():
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    inputs = (draw(2, 9, 3), draw(2, 8, 3))
    result = torch.library.opcheck(
        torch.ops.mixbench.l1_distance.default, inputs, test_utils=checks
    )
    assert set(result.values()) == {"SUCCESS"}


@pytest.mark.parametrize(("left", "right"), [(0, 0), (3, 0), (2, 2), (40, 40)])
@pytest.mark.parametrize("T", [1, 2, 31])
def test_window_attention_equals_the_masked_definition(T, left, right):
    inputs = [draw(2, 2, T, 4, seed=s) for s in range(3)]
    assert_same(
        lambda *x: window_attention(*x, left, right),
        lambda *x: naive_window_attention(*x, left, right),
        inputs,
    )
    weights = window_weights(inputs[0], inputs[1], left, right)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, T, dtype=F64))


@pytest.mark.parametrize("name", SPIDERWEB_FILES)
def test_spiderweb_golden_levels(golden, name):
    g = golden("spiderweb_layer")
    levels, x = g[f"levels_{name}"], g[f"x_{name}"][None]
    radius, eta = int(name.split("_r")[1][0]), int(name[-1])
    gates = 1 / torch.arange(1, len(levels) + 1, dtype=F64)
    projections = identity(x.shape[-1])
    naive = naive_spiderweb(x, projections, gates, eta, radius)
    fast = [
        x + spiderweb_update(x, projections, gates[: n + 1], eta, radius) for n in range(len(gates))
    ]
    for after in (naive, fast):
        torch.testing.assert_close(torch.cat(after), levels, rtol=0, atol=1e-10)
        torch.testing.assert_close(after[-1][0], g[f"y_{name}"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("eta", "radius"), [(2, 0), (2, 1), (3, 1), (2, 2), (3, 40)])
@pytest.mark.parametrize("T", [1, 2, 3, 27, 33])
def test_spiderweb_equals_the_definition(T, eta, radius, causal):
    """Gradients of tokens, gates and every projection."""
    inputs = [draw(2, T, 6), draw(num_levels(T, eta) + 1, seed=1)]
    inputs += [
        (0.3 * draw(*shape, seed=2 + n)).detach().requires_grad_()
        for n, shape in enumerate([(18, 6), (18,), (6, 6), (6,)])
    ]
    assert_same(
        lambda x, g, *p: spiderweb_update(x, Projections(2, *p), g, eta, radius, causal),
        lambda x, g, *p: naive_spiderweb(x, Projections(2, *p), g, eta, radius, causal)[-1] - x,
        inputs,
    )


def test_causal_levels_in_pytorch_equal_those_of_the_kernel():
    """What other devices run."""
    x, gates = draw(2, 33, 6), draw(7, seed=1)
    shapes = [(18, 6), (18,), (6, 6), (6,)]
    p = Projections(2, *(0.3 * draw(*shape, seed=2 + n) for n, shape in enumerate(shapes)))
    kernel = spiderweb_update(x, p, gates, 2, 1, True)
    plain = x
    for level, gate in enumerate(gates):
        plain = plain + gate * _causal_update(plain, p, level, 2, 1)
    torch.testing.assert_close(plain - x, kernel, rtol=0, atol=1e-10)


def level_inputs(T: int, D: int) -> list[Tensor]:
    """Queries, keys and values, gates, and what leads from level to level; 2 heads, eta 2."""
    return [
        draw(1, T, 3 * D),
        draw(num_levels(T, 2) + 1, seed=1),
        (draw(3 * D, D, seed=2) / D).detach().requires_grad_(),
        draw(3 * D, seed=3),
    ]


def test_causal_levels_keep_the_rules_of_pytorch():
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    operator = torch.ops.mixbench.prefix_levels.default
    result = torch.library.opcheck(operator, (*level_inputs(9, 6), 2, 2, 1), test_utils=checks)
    assert set(result.values()) == {"SUCCESS"}


def test_causal_levels_in_float32_stay_close():
    inputs = level_inputs(100, 16)
    narrow = [x.detach().float().requires_grad_() for x in inputs]
    out, single = (prefix_levels(*x, 2, 2, 1) for x in (inputs, narrow))
    size = out.abs().max()
    torch.testing.assert_close(single.double() / size, out / size, rtol=0, atol=1e-5)
    for slow, fast in zip(
        torch.autograd.grad(out.sum(), inputs),
        torch.autograd.grad(single.sum(), narrow),
        strict=True,
    ):
        size = slow.abs().max()
        torch.testing.assert_close(fast.double() / size, slow / size, rtol=0, atol=1e-4)


def test_number_of_levels_is_exact_at_powers():
    assert [num_levels(n, 2) for n in (1, 2, 3, 4, 5, 256, 257)] == [0, 1, 2, 2, 3, 8, 9]
    assert [num_levels(n, 3) for n in (1, 3, 4, 27, 28, 243)] == [0, 1, 2, 3, 4, 5]
