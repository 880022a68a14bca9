"""A mixer that holds another one is one layer."""

from __future__ import annotations

import pytest
from torch import nn

from mixbench.api import Claim, Mixer
from mixbench.checks.suite import check_mixer, run_checks
from mixbench.mixers.attention import Attention
from mixbench.models.inspect import mixers
from mixbench.runs.run import run


class Wrapped(Mixer):
    """Attention and a linear layer."""

    def __init__(self, *, d_model: int, causal: bool) -> None:
        super().__init__(d_model=d_model, causal=causal)
        self.inner = Attention(d_model=d_model, causal=causal)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.out(self.inner(x))

    def state_size(self, seq_len):
        return self.inner.state_size(seq_len)

    def signature(self, x):
        return [Claim.close("claims of the outer one count", 1.0, 1.0, 0.0)]


class Borrowing(Wrapped):
    """Uses the inner mixer's parts, never its forward."""

    def forward(self, x):
        return self.out(self.inner.mix(self.inner.convolved(x)))


@pytest.mark.parametrize("outer", [Wrapped, Borrowing])
def test_a_nested_mixer_counts_once(settings, outer):
    """Two layers of it; inner parameters, FLOPs, state and signatures are not counted again."""
    chosen = settings("mixer=custom", f"mixer._target_={__name__}.{outer.__name__}", "epochs=1")
    result = run(chosen, []).result
    layer = outer(d_model=16, causal=True)
    assert result.status == "completed"
    assert result.parameters.mixer == 2 * sum(p.numel() for p in layer.parameters())
    assert result.state_size == 2 * layer.state_size(32)
    assert [c.name for c in result.signature.checks] == ["claims of the outer one count"] * 2
    flops = result.operations.measured_flops_per_token
    own = settings("mixer=attention", "epochs=1")
    plain = run(own, []).result.operations.measured_flops_per_token
    assert flops == plain + 2 * 2 * 16 * 16  # two layers' linear map, two FLOPs a weight


def test_a_mixer_that_is_never_called_does_not_cost_the_result(settings, monkeypatch):
    monkeypatch.setattr("mixbench.models.blocks.apply_mixer", lambda mixer, x: mixer.q_proj(x))
    result = run(settings("epochs=1"), []).result
    assert result.status == "completed"
    assert result.measured_state_size is None
    assert [c.observed for c in result.signature.checks] == [
        "the model does not call its forward"
    ] * 2


def test_a_shared_mixer_is_one():
    one = Attention(d_model=4, causal=True)
    assert mixers(nn.Sequential(one, nn.Sequential(one))) == [one]


def test_exceptions_of_inner_mixers_are_merged():
    """A softmax ignores the inner `k_proj.bias`, which is `inner.k_proj.bias` here."""
    (outcome,) = [
        each
        for each in check_mixer(lambda: Wrapped(d_model=8, causal=True), skip=["torch_compile"])
        if each.check == "gradients_arrive"
    ]
    assert "never, as declared: inner.k_proj.bias" in outcome.observed


def test_an_inner_exception_that_does_not_hold_outside_is_no_failure():
    class Quiet(Attention):
        def exceptions(self):
            return {**super().exceptions(), "shape": "nothing is wrong with it"}

    class Outer(Wrapped):
        def __init__(self) -> None:
            super().__init__(d_model=8, causal=True)
            self.inner = Quiet(d_model=8, causal=True)

    (outcome,) = [each for each in run_checks(Outer, seq_len=17) if each.check == "shape"]
    assert outcome.status == "passed"
