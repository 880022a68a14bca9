"""Golden blocks of the forecasting mixers, and what all attention-like mixers share."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from mixbench.mixers.attention import Attention
from mixbench.mixers.base import Mixer
from mixbench.mixers.gated_deltanet import GatedDeltaNet
from mixbench.mixers.laplacian import Laplacian
from mixbench.mixers.lattice import Lattice
from mixbench.mixers.local import Local
from mixbench.mixers.parts.attention_weights import window_pairs
from mixbench.mixers.parts.spiderweb_theory import predictions, reach
from mixbench.mixers.spiderweb import Spiderweb
from mixbench.models.blocks import WindowBlock
from mixbench.models.measure import count_elements, measured_flops, measured_state_size
from mixbench.models.signature import evaluate, summarise
from mixbench.models.window_regressor import WindowRegressor
from tests.support.golden_names import from_golden_forecasting

F64 = torch.float64
NAMES = ["attention", "local", "laplacian", "spiderweb", "gated_deltanet", "lattice"]
TWO_SIDED = NAMES[:4]


def make(name: str, causal: bool = True, d_model: int = 16, **knobs) -> Mixer:
    cls = {
        "attention": Attention, "local": Local, "laplacian": Laplacian, "spiderweb": Spiderweb,
        "gated_deltanet": GatedDeltaNet, "lattice": Lattice,
    }[name]  # fmt: skip
    if name == "spiderweb":
        knobs.setdefault("seq_len", 40)
    if name == "lattice":
        knobs.setdefault("addr_scale", 1.5)
    torch.manual_seed(0)
    return cls(d_model=d_model, causal=causal, **knobs).double()


# Golden ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("file", "name"), [("dot", "attention"), ("lap", "laplacian")])
def test_block(golden, file, name):
    g = golden(f"attention_block_{file}")
    block = WindowBlock(16, 32, make(name, causal=False, conv_width=0, out_gate=False)).double()
    block.load_state_dict(from_golden_forecasting(g, "param"))
    x = g["x"].requires_grad_()
    y = block(x)
    torch.testing.assert_close(y, g["y"], rtol=0, atol=1e-10)
    y.backward(g["grad_y"])
    torch.testing.assert_close(x.grad, g["grad_x"], rtol=0, atol=1e-9)
    expected = from_golden_forecasting(g, "grad")
    grads = {key: p.grad for key, p in block.named_parameters()}
    assert grads.keys() == expected.keys()
    for key, grad in grads.items():
        torch.testing.assert_close(grad, expected[key], rtol=0, atol=1e-9)


def test_attention_weights_of_the_golden_block(golden):
    g = golden("attention_block_dot")
    block = WindowBlock(16, 32, make("attention", causal=False, conv_width=0, out_gate=False))
    block.double().load_state_dict(from_golden_forecasting(g, "param"))
    weights = block.mixer.weights(block.norm1(g["x"]))
    torch.testing.assert_close(weights, g["attention"], rtol=0, atol=1e-10)


def test_window_regressor(golden):
    g = golden("window_regressor_lap")
    model = WindowRegressor(
        seq_len=12, d_model=16, d_inner=32,
        make_mixer=lambda: make("laplacian", causal=False, conv_width=0, out_gate=False),
    ).double()  # fmt: skip
    model.load_state_dict(from_golden_forecasting(g, "param"))
    torch.testing.assert_close(model(g["x"]), g["y"][:, 0], rtol=0, atol=1e-10)


def test_spiderweb_mixer_is_the_golden_layer_with_identity_projections(golden):
    """One head, published gates: the input plus the mixer's output is the layer."""
    g = golden("spiderweb_layer")
    x = g["x_n33_d8_r2_eta2"][None]
    mixer = make("spiderweb", False, 8, seq_len=33, num_heads=1, radius=2, conv_width=0)
    with torch.no_grad():
        for proj in (mixer.q_proj, mixer.k_proj, mixer.v_proj, mixer.o_proj):
            proj.weight.copy_(torch.eye(8))
            proj.bias.zero_()
    torch.testing.assert_close((x + mixer(x))[0], g["y_n33_d8_r2_eta2"], rtol=0, atol=1e-6)
    with torch.no_grad():  # the gates' 1/3 in float64, not widened from float32
        mixer.gates.copy_(1 / torch.arange(1, 8, dtype=F64))
    torch.testing.assert_close((x + mixer(x))[0], g["y_n33_d8_r2_eta2"], rtol=0, atol=1e-10)


def test_analytic_predictions():
    path = Path(__file__).parents[1] / "golden" / "spiderweb_predictions.json"

    def flat(node, path=""):
        if not isinstance(node, (dict, list)):
            return {path: node}
        items = node.items() if isinstance(node, dict) else enumerate(node)
        return {k: v for key, value in items for k, v in flat(value, f"{path}/{key}").items()}

    expected = flat(json.loads(path.read_text()))
    got = flat(json.loads(json.dumps(predictions())))
    assert got.keys() == expected.keys()
    assert got == pytest.approx(expected, rel=1e-12)


# Forms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TWO_SIDED)
@pytest.mark.parametrize("causal", [False, True])
def test_causal_or_not(name, causal):
    mixer = make(name, causal, conv_width=4 if causal else 0)
    x = torch.randn(1, 27, 16, dtype=F64)
    changed = x.clone()
    changed[:, 14] += 1
    difference = (mixer(changed) - mixer(x)).abs().amax(-1)[0]
    assert difference[14] > 1e-6
    assert (difference[:14].max() < 1e-12) == causal


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("T", [0, 1, 2, 33])
def test_shapes_and_dead_parameters(name, T):
    mixer = make(name)
    x = torch.randn(2, T, 16, dtype=F64)
    y = mixer(x)
    assert y.shape == x.shape
    if T == 33:
        y.square().sum().backward()
        for key, parameter in mixer.named_parameters():
            assert parameter.grad is not None, key
            assert parameter.grad.isfinite().all(), key


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("T", [1, 2, 33])
def test_streaming_equals_the_parallel_form(name, T):
    """Values at every step, and gradients of the input and of every parameter."""
    mixer = make(name)
    x = torch.randn(2, T, 16, dtype=F64, requires_grad=True)
    parallel = mixer(x)
    state, outputs = mixer.init_state(2), []
    for t in range(T):
        out, state = mixer.step(x[:, t], state)
        outputs.append(out)
    streamed = torch.stack(outputs, dim=1)
    torch.testing.assert_close(streamed, parallel, rtol=0, atol=1e-10)
    weight = torch.linspace(-1, 1, parallel.numel(), dtype=F64).reshape(parallel.shape)
    wanted = [x, *mixer.parameters()]
    grads = [
        torch.autograd.grad((y * weight).sum(), wanted, allow_unused=True, retain_graph=True)
        for y in (parallel, streamed)
    ]
    for one, other in zip(*grads, strict=True):
        one = torch.zeros(()) if one is None else one
        other = torch.zeros(()) if other is None else other
        assert ((one - other).abs() <= 1e-9 * (1 + one.abs().max())).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_can_be_continued_twice_from_any_split(name):
    mixer = make(name)
    x = torch.randn(1, 17, 16, dtype=F64)
    with torch.no_grad():
        whole = mixer(x)
        states = [mixer.init_state(1)]
        for t in range(17):
            states.append(mixer.step(x[:, t], states[-1])[1])
        for split in range(17):
            for _ in range(2):
                out, _ = mixer.step(x[:, split], states[split])
                torch.testing.assert_close(out, whole[:, split], rtol=0, atol=1e-10)


def test_the_causal_spiderweb_does_not_depend_on_what_comes_after():
    """A prefix alone gives the same outputs, although it needs fewer levels."""
    mixer = make("spiderweb")
    x = torch.randn(1, 40, 16, dtype=F64)
    for T in (1, 2, 7, 16, 17):
        torch.testing.assert_close(mixer(x[:, :T]), mixer(x)[:, :T], rtol=0, atol=1e-12)


def test_only_causal_mixers_stream():
    with pytest.raises(NotImplementedError):
        make("attention", causal=False).init_state(1)
    assert measured_state_size(make("attention", causal=False), torch.zeros(1, 3, 16)) is None


# Accounting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("T", [1, 64, 1000])
@pytest.mark.parametrize("d_model", [64, 128, 256])
def test_state_size_is_what_streaming_holds(name, T, d_model):
    knobs = {"seq_len": 1000} if name == "spiderweb" else {}
    mixer = make(name, d_model=d_model, **knobs)
    with torch.no_grad():
        state = mixer.init_state(1)
        for x in torch.randn(T, 1, d_model, dtype=F64):
            _, state = mixer.step(x, state)
    if name == "lattice":
        cells = len(state["cells"][0].cells)
        assert count_elements(state) == mixer.state_size(T, cells=cells)
        assert count_elements(state) <= mixer.state_size(T)
    else:
        assert count_elements(state) == mixer.state_size(T)
    assert count_elements(state["conv"]) == mixer.conv_state_size() == 3 * d_model


def test_published_operations_of_a_pair():
    """32 channels: dot 32 multiplies and no distance; Laplacian none and 32 distances."""
    dot = make("attention", d_model=64).pair_operations()
    assert (dot.multiplies, dot.absolute_differences) == (32, 0)
    laplacian = make("laplacian", d_model=64).pair_operations()
    assert (laplacian.multiplies, laplacian.absolute_differences) == (0, 32)


@pytest.mark.parametrize("T", [1, 5, 32])
def test_attention_operations_against_pytorchs_counter(T):
    """The counter sees two FLOPs for each multiply of the matrix products, and all T x T pairs."""
    mixer = make("attention", False, conv_width=0, out_gate=False)
    multiplies = mixer.operations(T).multiplies * T
    softmax_and_scale = T * (2 * T + 16)  # two heads' divisions, the queries' scale
    assert measured_flops(mixer, torch.randn(1, T, 16, dtype=F64)) == 2 * (
        multiplies - softmax_and_scale
    )


def test_window_pairs_by_counting():
    for T, left, right in itertools.product((1, 2, 5, 9), (0, 1, 3, 20), (0, 2, 20)):
        pairs = sum(-left <= j - i <= right for i in range(T) for j in range(T))
        assert window_pairs(T, left, right) == pairs


def test_spiderweb_operations_grow_as_t_log_t():
    mixer = make("spiderweb", False, seq_len=4096)
    per_token = [mixer.operations(T).multiplies for T in (256, 1024, 4096)]
    assert per_token[2] < 1.1 * per_token[0]
    causal = make("spiderweb", seq_len=4096)
    per_token = [causal.operations(T).multiplies for T in (256, 1024, 4096)]
    assert per_token[2] / per_token[0] == pytest.approx(13 / 9, rel=0.02)


# Signatures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_signatures_hold(name, causal):
    if not causal and name not in TWO_SIDED:
        return
    mixer = make(name, causal, conv_width=4 if causal else 0) if name in TWO_SIDED else make(name)
    summary = summarise([evaluate(mixer, torch.randn(4, 33, 16, dtype=F64))])
    expected = {"attention": 2, "local": 2, "laplacian": 5, "spiderweb": 6,
                "gated_deltanet": 3, "lattice": 4}  # fmt: skip
    assert summary["failing"] == []
    assert (summary["held"], summary["of"]) == (expected[name], expected[name])
    json.dumps(summary, allow_nan=False)


def break_laplacian(monkeypatch):
    monkeypatch.setattr(
        "mixbench.mixers.laplacian.laplacian_logits",
        lambda q, k, sigma, causal=False: (q @ k.mT) * sigma[:, None, None],
    )
    return make("laplacian", False), "entropy rises with sigma (times 1/2, 1, 2)"


def break_attention(monkeypatch):
    weights = Attention.weights
    monkeypatch.setattr(Attention, "weights", lambda self, x: weights(self, x) * 1.001)
    return make("attention"), "rows sum to 1"


def break_spiderweb_reach(monkeypatch):
    """It drops its upper levels."""
    mixer = make("spiderweb", False, conv_width=0)
    monkeypatch.setattr("mixbench.mixers.spiderweb.num_levels", lambda seq_len, eta: 2)
    return mixer, "reach of the middle output, by gradients"


def break_spiderweb_gate(monkeypatch):
    mixer = make("spiderweb", False, conv_width=0)
    with torch.no_grad():
        mixer.gates[2] = 0
    return mixer, "gates are finite and at work"


def break_lattice_credit(monkeypatch):
    from mixbench.ops.lattice_rule import lattice_rule as rule

    monkeypatch.setattr(
        "mixbench.mixers.lattice.lattice_rule",
        lambda wa, ra, q, k, v, a, b, *o: rule(wa, ra, q, k, v, a**0.5, b, *o),
    )
    return make("lattice"), "credit falls as the product of the gates"


def break_lattice_growth(monkeypatch):
    mixer = make("lattice")
    with torch.no_grad():
        mixer.write_proj.weight.zero_()
    return mixer, "cells grow with distinct tokens"


def break_one_cell(monkeypatch):
    from mixbench.ops.gated_delta_rule import gated_delta_rule as rule

    monkeypatch.setattr(
        "mixbench.mixers.lattice.gated_delta_rule",
        lambda q, k, v, a, b: rule(q, k, v, a, 0.9 * b),
    )
    return make("lattice"), "capped at one cell it is Gated DeltaNet"


@pytest.mark.parametrize(
    "broken",
    [
        break_laplacian,
        break_attention,
        break_spiderweb_reach,
        break_spiderweb_gate,
        break_lattice_credit,
        break_lattice_growth,
        break_one_cell,
    ],
)
def test_a_broken_mixer_fails_its_signature(monkeypatch, broken):
    mixer, name = broken(monkeypatch)
    torch.manual_seed(1)
    summary = summarise([evaluate(mixer, torch.randn(4, 33, 16, dtype=F64))])
    assert not summary["holds"]
    assert name in summary["failing"]


def test_a_signature_that_raises_does_not_hold():
    class Raising(Attention):
        def signature(self, x):
            raise ZeroDivisionError("on purpose")

    summary = summarise([evaluate(Raising(d_model=16, causal=True), torch.randn(1, 3, 16))])
    assert not summary["holds"]
    assert summary["checks"][0]["observed"] == "ZeroDivisionError: on purpose"


def test_a_check_must_hold_in_every_layer():
    good = make("spiderweb", False, conv_width=0)
    bad, name = break_spiderweb_gate(None)
    x = torch.randn(1, 33, 16, dtype=F64)
    summary = summarise([evaluate(good, x), evaluate(bad, x)])
    assert summary["failing"] == [name]
    assert (summary["held"], summary["of"]) == (5, 6)
    assert summarise([[], []]) is None


@pytest.mark.parametrize(("radius", "causal"), [(0, False), (1, False), (1, True), (2, True)])
def test_predicted_reach_by_brute_force(radius, causal):
    """Gradients of the definition, generic weights, against the sets."""
    n = 21
    mixer = make("spiderweb", causal, seq_len=n, radius=radius, conv_width=0)
    expected = reach(n, len(mixer.gates) - 1, 2, radius, causal)
    x = torch.randn(1, n, 16, dtype=F64, requires_grad=True)
    after = x + mixer.mix(x)
    for t in range(n):
        (grad,) = torch.autograd.grad(after[0, t].square().sum(), x, retain_graph=True)
        assert {int(i) for i in grad[0].abs().amax(-1).nonzero()} == expected[t]


def test_laplacian_never_makes_the_five_axis_tensor():
    """[B, H, T, T, K] would take 69 GB here."""
    mixer = Laplacian(d_model=64, causal=True)
    with torch.no_grad():
        out = mixer(torch.randn(1, 2048, 64))
    assert out.isfinite().all()


def test_sigma_starts_where_it_is_told():
    for sigma in (0.35, 0.7, 1.4, 30.0, 1e-3):
        mixer = Laplacian(d_model=16, causal=True, sigma=sigma)
        assert F.softplus(mixer.theta).tolist() == pytest.approx([sigma] * 2, rel=1e-4)
