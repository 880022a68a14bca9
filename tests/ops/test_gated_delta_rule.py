"""The gated delta rule against the golden file and its chunked form against the definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mixbench.ops.gated_delta_rule import (
    chunk_gated_delta_rule,
    gated_delta_rule,
    naive_gated_delta_rule,
)

RULES = [gated_delta_rule, chunk_gated_delta_rule]
LENGTHS = [1, 2, 3, 63, 64, 65, 130]


def random_inputs(T: int, gates: str = "mixed", dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """q, k, v, alpha, beta with B 2, H 2, K 5, V 4."""
    generator = torch.Generator().manual_seed(T)
    q, k = (torch.randn(2, T, 2, 5, generator=generator, dtype=dtype) for _ in range(2))
    v = torch.randn(2, T, 2, 4, generator=generator, dtype=dtype)
    alpha, beta = torch.rand(2, 2, T, 2, generator=generator, dtype=dtype)
    if gates == "forgetting":
        alpha = torch.full_like(alpha, 1e-4)
    elif gates == "keeping":
        alpha, beta = torch.full_like(alpha, 0.9991), torch.ones_like(beta)
    elif gates == "alternating":
        alpha = torch.where(torch.arange(T)[:, None] % 7 == 3, 1e-4, 0.9991).expand_as(alpha)
        alpha = alpha.to(dtype).clone()
    return [x.requires_grad_() for x in (q, F.normalize(k, dim=-1), v, alpha, beta)]


@pytest.mark.parametrize("rule", [naive_gated_delta_rule, *RULES])
def test_golden(golden, rule):
    g = golden("gated_delta_rule")
    out, state = rule(g["q"], g["k"], g["v"], g["alpha"], g["beta"])
    torch.testing.assert_close(out, g["out"], rtol=0, atol=1e-10)
    torch.testing.assert_close(state, g["final_state"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("fast_rule", RULES)
@pytest.mark.parametrize("gates", ["mixed", "forgetting", "keeping", "alternating"])
@pytest.mark.parametrize("T", LENGTHS)
def test_fast_form_equals_the_definition(fast_rule, T, gates):
    inputs = random_inputs(T, gates)
    results = []
    for rule in (naive_gated_delta_rule, fast_rule):
        out, state = rule(*inputs)
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
        grads = torch.autograd.grad((out * weight).sum() + state.square().sum(), inputs)
        results.append((out, state, grads))
    (out, state, grads), (fast_out, fast_state, fast_grads) = results
    torch.testing.assert_close(fast_out, out, rtol=0, atol=1e-10)
    torch.testing.assert_close(fast_state, state, rtol=0, atol=1e-10)
    for fast, slow in zip(fast_grads, grads, strict=True):
        scale = 1 + slow.abs().max()  # the gradient of a gate of 1e-4 is large
        torch.testing.assert_close(fast / scale, slow / scale, rtol=0, atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("gates", ["mixed", "alternating"])
def test_float32_stays_close(rule, gates):
    inputs = random_inputs(130, gates)
    exact, _ = naive_gated_delta_rule(*inputs)
    single, _ = rule(*(x.float() for x in inputs))
    torch.testing.assert_close(single.double(), exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_state_carries_over_a_split(rule):
    inputs = random_inputs(65)
    whole, final = rule(*inputs)
    first, state = rule(*(x[:, :17] for x in inputs))
    second, last = rule(*(x[:, 17:] for x in inputs), state=state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(last, final, rtol=0, atol=1e-12)


def test_empty_sequence_leaves_the_state():
    q, k, v, alpha, beta = (x[:, :0] for x in random_inputs(3))
    state = torch.ones(2, 2, 4, 5, dtype=torch.float64)
    for rule in (naive_gated_delta_rule, *RULES):
        out, after = rule(q, k, v, alpha, beta, state=state)
        assert out.shape == (2, 0, 2, 4)
        assert torch.equal(after, state)


@pytest.mark.parametrize("rule", RULES)
def test_sixteen_bit_inputs_are_computed_in_float32_under_autocast(rule):
    inputs = random_inputs(65, dtype=torch.float32)
    narrow = [x.detach().bfloat16() for x in inputs]
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = rule(*narrow)
    expected, _ = naive_gated_delta_rule(*(x.double() for x in narrow))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-5)
