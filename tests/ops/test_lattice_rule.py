"""The lattice rule against the golden files, and its fast form against the definition."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mixbench.ops.gated_delta_rule import naive_gated_delta_rule
from mixbench.ops.lattice_lists import lists_lattice_rule
from mixbench.ops.lattice_rule import lattice_rule, naive_lattice_rule
from mixbench.ops.spline import spline_neighbourhood

FILES = {"spread": "unit", "crowded": "unit", "one_address": "unit", "sum_weights": "partition"}
NAMES = {
    "addr_k": "write_address",
    "addr_q": "read_address",
    **{name: name for name in ("q", "k", "v", "alpha", "beta")},
}


RULES = [lattice_rule, lists_lattice_rule]
Rule = Callable[..., tuple[Tensor, Tensor]]


def random_inputs(T: int, scale: float, gates: str = "mixed") -> list[Tensor]:
    """Addresses, q, k, v, alpha, beta with B 2, H 2, K 5, V 4."""
    generator = torch.Generator().manual_seed(1000 + T)

    def draw(*shape: int) -> Tensor:
        return torch.randn(2, T, *shape, generator=generator, dtype=torch.float64)

    write, read = scale * torch.tanh(draw(2)), scale * torch.tanh(draw(2))
    q, k, v = draw(2, 5), F.normalize(draw(2, 5), dim=-1), draw(2, 4)
    alpha, beta = torch.sigmoid(draw(2)), torch.sigmoid(draw(2))
    if gates == "forgetting":
        alpha = torch.full_like(alpha, 1e-4)
    elif gates == "keeping":
        alpha, beta = torch.full_like(alpha, 0.9991), torch.ones_like(beta)
    return [x.requires_grad_() for x in (write, read, q, k, v, alpha, beta)]


def assert_equal_to_definition(fast: Rule, inputs: list[Tensor], **options: str) -> None:
    results = []
    for rule in (naive_lattice_rule, fast):
        out, n_cells = rule(*inputs, **options)
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
        grads = torch.autograd.grad((out * weight).sum(), inputs, allow_unused=True)
        results.append((out, n_cells, grads))
    (out, n_cells, grads), (fast_out, fast_n_cells, fast_grads) = results
    assert torch.equal(fast_n_cells, n_cells)
    torch.testing.assert_close(fast_out, out, rtol=0, atol=1e-10)
    for slow, quick in zip(grads, fast_grads, strict=True):
        if slow is None:  # reading the nearest cell leaves the read address without a gradient
            assert quick is None or not quick.any()
            continue
        scale = 1 + slow.abs().max()
        torch.testing.assert_close(quick / scale, slow / scale, rtol=0, atol=1e-9)


@pytest.mark.parametrize("rule", [naive_lattice_rule, *RULES])
@pytest.mark.parametrize("file", FILES)
def test_golden(golden, file, rule):
    g = golden(f"lattice_rule_{file}")
    inputs = {argument: g[name].requires_grad_() for name, argument in NAMES.items()}
    out, n_cells = rule(**inputs, weights=FILES[file])
    torch.testing.assert_close(out, g["out"], rtol=0, atol=1e-10)
    assert n_cells.tolist() == g["n_cells"].tolist()
    grads = torch.autograd.grad(out, list(inputs.values()), g["grad_out"])
    for name, grad in zip(NAMES, grads, strict=True):
        torch.testing.assert_close(grad, g[f"grad.{name}"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("gates", ["mixed", "forgetting", "keeping"])
@pytest.mark.parametrize("scale", [0.2, 4.0])
@pytest.mark.parametrize("T", [1, 2, 3, 63, 64, 65])
def test_fast_form_equals_the_definition(rule, T, scale, gates):
    assert_equal_to_definition(rule, random_inputs(T, scale, gates))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scale", [0.2, 8.0])
def test_fast_form_equals_the_definition_on_long_lists(rule, scale):
    assert_equal_to_definition(rule, random_inputs(130, scale))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("weights", ["unit", "partition"])
@pytest.mark.parametrize("read_mode", ["all", "nearest"])
def test_fast_form_equals_the_definition_in_every_mode(rule, weights, read_mode):
    assert_equal_to_definition(rule, random_inputs(31, 3.0), weights=weights, read_mode=read_mode)


@pytest.mark.parametrize("rule", RULES)
def test_addresses_far_apart_are_told_apart(rule):
    inputs = random_inputs(9, 2.0)
    far = inputs[0].detach() + torch.tensor([3e9, -4e9], dtype=torch.float64) * (
        torch.arange(9)[:, None] % 3
    )
    inputs[0] = far.requires_grad_()
    inputs[1] = far.detach().clone().requires_grad_()
    assert_equal_to_definition(rule, inputs)


@pytest.mark.parametrize("rule", RULES)
def test_gradient_equals_finite_differences(rule):
    inputs = random_inputs(7, 1.5)
    assert torch.autograd.gradcheck(lambda *x: rule(*x)[0], inputs, atol=1e-6)


def test_unit_weights_return_a_value_with_gain_one():
    """Published: reading exactly where one wrote returns the value."""
    address = torch.tensor([[[0.3, -1.7]]], dtype=torch.float64)
    k = F.normalize(torch.ones(1, 1, 1, 3, dtype=torch.float64), dim=-1)
    v = torch.tensor([[[[2.0, -1.0]]]], dtype=torch.float64)
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    out, n_cells = lattice_rule(address, address, k, k, v, one, one)
    torch.testing.assert_close(out, v, rtol=0, atol=1e-14)
    assert n_cells.tolist() == [9]


@pytest.mark.parametrize(("weights", "power"), [("unit", 2), ("partition", 1)])
def test_weights_are_normalised(weights, power):
    address = torch.linspace(-3, 3, 26, dtype=torch.float64).reshape(13, 2)
    cells, w = spline_neighbourhood(address, weights)
    assert cells.shape == (13, 9, 2)
    torch.testing.assert_close((w**power).sum(-1), torch.ones(13, dtype=torch.float64))
    assert torch.equal(cells[:, 4], address.round())


@pytest.mark.parametrize("rule", RULES)
def test_a_token_does_not_see_later_ones(rule):
    inputs = [x.detach() for x in random_inputs(40, 2.0)]
    out, _ = rule(*inputs)
    changed = [torch.cat([x[:, :25], x[:, 25:].roll(1, dims=1)], dim=1) for x in inputs]
    out_changed, _ = rule(*changed)
    torch.testing.assert_close(out_changed[:, :25], out[:, :25], rtol=0, atol=1e-12)
    assert not torch.allclose(out_changed[:, 25:], out[:, 25:])


def test_one_shared_cell_is_the_gated_delta_rule():
    """Nearest reads of tokens whose writes all round to one centre see that cell's own rule."""
    write, _, q, k, v, alpha, beta = random_inputs(20, 0.4)
    w = spline_neighbourhood(write)[1][..., 4]
    out, _ = lattice_rule(write, torch.zeros_like(write), q, k, v, alpha, beta, "unit", "nearest")
    expected, _ = naive_gated_delta_rule(q, k, v, alpha ** w[..., None], beta * w[..., None])
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_empty_sequence(rule):
    inputs = [x[:, :0] for x in random_inputs(3, 2.0)]
    out, n_cells = rule(*inputs)
    assert out.shape == (2, 0, 2, 4)
    assert n_cells.tolist() == [0, 0]
