"""Mixers and the language model against the golden files, values and gradients."""

from __future__ import annotations

import pytest
import torch

from mixbench.mixers.attention import Attention
from mixbench.mixers.base import Mixer
from mixbench.mixers.gated_deltanet import GatedDeltaNet
from mixbench.models.language_model import LanguageModel
from tests.support.golden_names import from_golden


def make(name: str) -> Mixer:
    if name == "causal_attention":
        return Attention(d_model=16, causal=True, num_heads=2)
    return GatedDeltaNet(d_model=16, causal=True, num_heads=2, key_width=6, value_width=5)


@pytest.mark.parametrize("name", ["causal_attention", "gated_deltanet"])
def test_mixer(golden, name):
    g = golden(f"mixer_{name}")
    mixer = make(name).double()
    mixer.load_state_dict(from_golden(g, "param"))
    x = g["x"].requires_grad_()
    y = mixer(x)
    torch.testing.assert_close(y, g["y"], rtol=0, atol=1e-10)
    y.backward(g["grad_y"])
    torch.testing.assert_close(x.grad, g["grad_x"], rtol=0, atol=1e-9)
    expected = from_golden(g, "grad")
    grads = {parameter: value.grad for parameter, value in mixer.named_parameters()}
    assert grads.keys() == expected.keys()
    for parameter, grad in grads.items():
        torch.testing.assert_close(grad, expected[parameter], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["causal_attention", "gated_deltanet"])
def test_language_model(golden, name):
    g = golden(f"mqar_model_{name}")
    model = LanguageModel(vocab_size=23, d_model=16, make_mixer=lambda: make(name)).double()
    model.load_state_dict(from_golden(g, "param"))
    logits = model(g["tokens"])
    torch.testing.assert_close(logits, g["logits"], rtol=0, atol=1e-10)
    asked = g["tokens"] % 3 == 0
    torch.testing.assert_close(model(g["tokens"], asked), logits[asked], rtol=0, atol=1e-12)
