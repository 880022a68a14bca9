"""The compiled cells as PyTorch operators: registration, threads, compilation, extreme gates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mixbench.ops.cells import delta_cells, plan_cells
from mixbench.ops.gated_delta_rule import gated_delta_rule
from mixbench.ops.lattice_rule import lattice_rule, naive_lattice_rule


def random_inputs(
    T: int, scale: float, K: int = 5, V: int = 4, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """Addresses, q, k, v, alpha, beta with B 3, H 2."""
    generator = torch.Generator().manual_seed(T)

    def draw(*shape: int) -> Tensor:
        return torch.randn(3, T, *shape, generator=generator, dtype=dtype)

    addresses = [scale * torch.tanh(draw(2)) for _ in range(2)]
    q, k, v = draw(2, K), F.normalize(draw(2, K), dim=-1), draw(2, V)
    inputs = [*addresses, q, k, v, torch.sigmoid(draw(2)), torch.sigmoid(draw(2))]
    return [x.requires_grad_() for x in inputs]


def operator_inputs(return_state: bool) -> tuple[object, ...]:
    """Arguments of `delta_cells`: three sequences of 20 tokens, one cell each, two slots each."""
    _, _, q, k, v, alpha, beta = random_inputs(20, 1.0)
    cell = torch.zeros(3, 20, 1, 2)
    *plan, _ = plan_cells(cell, cell)
    w = torch.rand(3, 20, 1, dtype=q.dtype, generator=torch.Generator().manual_seed(1))
    initial_state = torch.ones(3 if return_state else 0, 2, 5, 4, dtype=q.dtype)
    leaves = [
        w.requires_grad_(),
        (0.5 * w).detach().requires_grad_(),
        initial_state.requires_grad_(),
    ]
    return (*plan, q, k, v, alpha.log().detach().requires_grad_(), beta, *leaves, return_state)


@pytest.mark.parametrize("return_state", [True, False])
def test_operator_keeps_the_rules_of_pytorch(return_state):
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    result = torch.library.opcheck(delta_cells, operator_inputs(return_state), test_utils=checks)
    assert set(result.values()) == {"SUCCESS"}


@pytest.mark.parametrize("return_state", [True, False])
def test_every_gradient_equals_finite_differences(return_state):
    *tensors, last = operator_inputs(return_state)
    plan, leaves = tensors[:4], tensors[4:]
    assert torch.autograd.gradcheck(
        lambda *x: delta_cells(*plan, *x, last)[: 1 + last], leaves, atol=1e-6
    )


def test_plan_sorts_events_by_cell_and_time_and_counts_written_cells():
    write = torch.tensor([[[[0, 0]], [[7, -7]]], [[[1, 1]], [[1, 1]]]])
    read = torch.tensor([[[[7, -7]], [[0, 0]]], [[[1, 1]], [[5, 5]]]])
    first_cell, starts, tokens, slots, n_cells = plan_cells(write, read)
    assert first_cell.tolist() == [0, 2, 4]
    assert starts.tolist() == [0, 2, 4, 7, 8, 8, 8, 8, 8]
    assert tokens.tolist() == [0, 1, 0, 1, 2, 2, 3, 3]
    assert slots.tolist() == [0, 1, 1, 0, 0, 1, 0, 1]
    assert n_cells.tolist() == [2, 1]


def test_number_of_threads_changes_no_bit():
    inputs = random_inputs(50, 3.0)
    results = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            out, _ = lattice_rule(*inputs)
            results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("gates", ["forgetting", "keeping", "alternating"])
@pytest.mark.parametrize("scale", [0.2, 3.0])
def test_float32_stays_close_at_extreme_gates(gates, scale):
    """Values within 1e-5 of the definition in float64, gradients within 1e-4."""
    inputs = [x[:1] for x in random_inputs(64, scale, K=32, V=32)]
    a = {"forgetting": 1e-4, "keeping": 0.9991}.get(gates)
    alpha = torch.where(torch.arange(64)[:, None] % 7 == 3, 1e-4, 0.9991).double()
    inputs[5] = (alpha if a is None else torch.full_like(alpha, a)).expand_as(inputs[5]).clone()
    inputs = [x.detach().requires_grad_() for x in inputs]
    narrow = [x.detach().float().requires_grad_() for x in inputs]
    exact, _ = naive_lattice_rule(*inputs)
    single, _ = lattice_rule(*narrow)
    scale_of = exact.abs().max()
    torch.testing.assert_close(single.double() / scale_of, exact / scale_of, rtol=0, atol=1e-5)
    grads = torch.autograd.grad(exact.square().sum(), inputs)
    quick = torch.autograd.grad(single.square().sum(), narrow)
    # Addresses in float32 fall a little beside those in float64; the rest does not see that much.
    for slow, fast in zip(grads, quick, strict=True):
        size = slow.abs().max()
        torch.testing.assert_close(fast.double() / size, slow / size, rtol=0, atol=1e-4)


@pytest.mark.parametrize("T", [1, 40])
def test_widths_that_are_no_power_of_two(T):
    inputs = random_inputs(T, 0.5, K=19, V=3)
    assert_same = torch.testing.assert_close
    exact, _ = naive_lattice_rule(*inputs)
    out, _ = lattice_rule(*inputs)
    assert_same(out, exact, rtol=0, atol=1e-10)
    for slow, fast in zip(
        torch.autograd.grad(exact.square().sum(), inputs),
        torch.autograd.grad(out.square().sum(), inputs),
        strict=True,
    ):
        assert_same(fast / (1 + slow.abs().max()), slow / (1 + slow.abs().max()), rtol=0, atol=1e-9)


def test_numbers_that_are_not_finite_stay_in_their_sequence_and_are_seen():
    inputs = [x.detach() for x in random_inputs(12, 1.0)]
    inputs[4][1, 3] = torch.nan
    out, _ = lattice_rule(*inputs)
    assert out[1].isnan().any()
    assert out[[0, 2]].isfinite().all()


def test_state_of_a_gated_delta_rule_has_a_gradient():
    _, _, *inputs = random_inputs(21, 1.0)
    state = torch.ones(3, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(gated_delta_rule, (*inputs, state), atol=1e-6)
