"""What every mixer in conf/ must do, and the knobs that the published findings are about."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from mixbench.core.errors import SettingError
from mixbench.mixers.attention import Attention
from mixbench.mixers.base import Mixer
from mixbench.mixers.gated_deltanet import GatedDeltaNet
from mixbench.mixers.lattice import Lattice
from mixbench.models.init import init_parameters
from mixbench.models.language_model import LanguageModel

MIXERS = [Attention, GatedDeltaNet, Lattice]


def same_parameters(source: nn.Module, target: nn.Module) -> None:
    """Copy every parameter that the two share by name."""
    values = source.state_dict()
    target.load_state_dict({name: values[name] for name in target.state_dict() if name in values})


@pytest.mark.parametrize("cls", MIXERS)
@pytest.mark.parametrize(("batch", "T"), [(2, 1), (1, 2), (3, 65), (2, 0)])
def test_shape_and_dtype(cls, batch, T):
    mixer = cls(d_model=8, causal=True).double()
    x = torch.randn(batch, T, 8, dtype=torch.float64)
    y = mixer(x)
    assert y.shape == x.shape
    assert y.dtype == torch.float64


@pytest.mark.parametrize("cls", MIXERS)
def test_causality(cls):
    torch.manual_seed(0)
    # A small lattice: on a wide one hardly any read meets a write.
    knobs = {"addr_scale": 1.0} if cls is Lattice else {}
    mixer = cls(d_model=16, causal=True, **knobs).double()
    x = torch.randn(2, 33, 16, dtype=torch.float64)
    y = mixer(x)
    for t in (0, 1, 16, 32):
        changed = x.clone()
        changed[:, t] += 1
        out = mixer(changed)
        torch.testing.assert_close(out[:, :t], y[:, :t], rtol=0, atol=1e-12)
        assert not torch.allclose(out[:, t], y[:, t])


def test_bidirectional_attention_sees_later_tokens():
    torch.manual_seed(0)
    mixer = Attention(d_model=16, causal=False, conv_width=0).double()
    x = torch.randn(1, 9, 16, dtype=torch.float64)
    changed = x.clone()
    changed[:, 8] += 1
    assert not torch.allclose(mixer(changed)[:, 0], mixer(x)[:, 0])


@pytest.mark.parametrize("cls", MIXERS)
def test_rows_of_a_batch_do_not_mix(cls):
    torch.manual_seed(0)
    mixer = cls(d_model=16, causal=True).double()
    x = torch.randn(3, 20, 16, dtype=torch.float64)
    torch.testing.assert_close(mixer(x)[1:2], mixer(x[1:2]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("cls", MIXERS)
def test_every_parameter_gets_a_finite_gradient(cls):
    torch.manual_seed(0)
    mixer = cls(d_model=16, causal=True)
    mixer(torch.randn(4, 40, 16)).square().sum().backward()
    for name, parameter in mixer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_lattice_capped_at_one_cell_is_gated_deltanet():
    torch.manual_seed(0)
    lattice = Lattice(d_model=16, causal=True, one_cell=True, retention_init=2.0).double()
    deltanet = GatedDeltaNet(d_model=16, causal=True, retention_init=2.0).double()
    same_parameters(lattice, deltanet)
    with torch.no_grad():
        lattice.q_scale.fill_(math.log(math.e - 1))  # softplus gives one: unscaled queries
    x = torch.randn(2, 130, 16, dtype=torch.float64)
    torch.testing.assert_close(lattice(x), deltanet(x), rtol=0, atol=1e-12)
    assert lattice.n_cells.tolist() == [1, 1]


def test_cells_a_token_depend_on_the_convolution_init():
    """Published: at std 0.02 the addresses collapse, so that the tokens share their cells."""
    cells = {}
    for std in (None, 0.02):
        torch.manual_seed(0)
        lattice = Lattice(d_model=64, causal=True, addr_scale=8.0, conv_init_std=std)
        lattice(torch.randn(8, 8, 64))
        cells[std] = lattice.n_cells.float().mean().item() / 8
    assert cells[None] > 6
    assert cells[0.02] < 2


def test_read_tie_starts_at_the_write_address():
    torch.manual_seed(0)
    x = torch.randn(1, 5, 16)
    write, read = Lattice(d_model=16, causal=True, read_tie=True).addresses(x)
    assert torch.equal(write, read)
    write, read = Lattice(d_model=16, causal=True).addresses(x)
    assert not torch.allclose(write, read)


def test_addresses_are_bounded_by_the_scale_or_not():
    torch.manual_seed(0)
    x = 100 * torch.randn(4, 50, 16)
    bounded = Lattice(d_model=16, causal=True, addr_scale=3.0).addresses(x)[0]
    assert bounded.abs().max() <= 3
    free = Lattice(d_model=16, causal=True, addr_scale=3.0, bounded=False).addresses(x)[0]
    assert free.abs().max() > 30


@pytest.mark.parametrize("scale", [1e-3, 4.0, 500.0])
def test_learned_scale_starts_at_the_given_one(scale):
    torch.manual_seed(0)
    x = torch.randn(2, 9, 16)
    fixed = Lattice(d_model=16, causal=True, addr_scale=scale)
    learned = Lattice(d_model=16, causal=True, addr_scale=scale, learn_addr_scale=True)
    same_parameters(learned, fixed)
    torch.testing.assert_close(learned.addresses(x)[0], fixed.addresses(x)[0], rtol=1e-5, atol=0)


def test_retention_init_opens_the_gates():
    torch.manual_seed(0)
    x = torch.zeros(1, 1, 64)
    for value, expected in ((0.0, 0.5), (4.0, 0.981), (9.0, 0.999)):
        alpha, _ = GatedDeltaNet(d_model=64, causal=True, retention_init=value).gates(x)
        assert alpha.mean().item() == pytest.approx(expected, abs=0.03)


def test_an_out_gate_of_zero_silences_the_mixer():
    mixer = GatedDeltaNet(d_model=16, causal=True, out_gate_init=0.0)
    assert not mixer(torch.randn(1, 5, 16)).any()


def test_state_sizes():
    D, T = 64, 100
    conv = 3 * D
    assert Attention(d_model=D, causal=True).state_size(T) == 2 * T * D + conv
    assert Attention(d_model=D, causal=True, conv_width=0).state_size(T) == 2 * T * D
    assert GatedDeltaNet(d_model=D, causal=True).state_size(T) == 2 * 32 * 32 + conv
    cell = 2 * 32 * 32
    small = Lattice(d_model=D, causal=True, addr_scale=1.0)
    assert small.state_size(T) == 25 * cell + conv
    assert small.state_size(1) == 9 * cell + conv
    free = Lattice(d_model=D, causal=True, addr_scale=1.0, bounded=False)
    assert free.state_size(T) == 9 * T * cell + conv
    assert Lattice(d_model=D, causal=True, one_cell=True).state_size(T) == cell + conv


def test_a_bounded_lattice_never_exceeds_its_state_size():
    torch.manual_seed(0)
    for scale in (0.4, 1.0, 1.6, 2.5):
        lattice = Lattice(d_model=16, causal=True, addr_scale=scale)
        lattice(50 * torch.randn(2, 400, 16))
        most = (lattice.state_size(400) - lattice.conv.state_size) // lattice.cell_size
        assert lattice.n_cells.max() <= most


@pytest.mark.parametrize("cls", MIXERS)
@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"d_model": 10, "num_heads": 3}, "num_heads"),
        ({"d_model": 8, "num_heads": 0}, "num_heads"),
        ({"d_model": 0}, "d_model"),
        ({"d_model": 8, "conv_width": -1}, "conv_width"),
    ],
)
def test_wrong_sizes_are_refused(cls, arguments, key):
    with pytest.raises(SettingError) as caught:
        cls(causal=True, **arguments)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"causal": False}, "causal"),
        ({"addr_scale": 0.0}, "addr_scale"),
        ({"addr_scale": math.inf}, "addr_scale"),
        ({"conv_init_std": -1.0}, "conv_init_std"),
        ({"one_cell": True, "read_tie": True}, "read_tie"),
        ({"value_width": 0}, "value_width"),
    ],
)
def test_wrong_lattice_settings_are_refused(arguments, key):
    with pytest.raises(SettingError) as caught:
        Lattice(**{"d_model": 8, "causal": True, **arguments})
    assert caught.value.key == key


# Initial values ----------------------------------------------------------------------------------


def build(cls: type[Mixer], seed: int) -> LanguageModel:
    model = LanguageModel(
        vocab_size=20, d_model=16, make_mixer=lambda: cls(d_model=16, causal=True)
    )
    init_parameters(model, seed)
    return model


def test_shared_parameters_start_bitwise_equal():
    models = [build(cls, seed=3).state_dict() for cls in MIXERS]
    shared = 0
    for first in models:
        for second in models:
            for name, value in first.items():
                if name in second and second[name].shape == value.shape:
                    assert torch.equal(second[name], value), name
                    shared += 1
    assert shared > 100
    assert not torch.equal(models[0]["blocks.0.mixer.q_proj.weight"], models[0]["head.weight"][:16])


def test_initial_values_ignore_the_global_generator():
    torch.manual_seed(1)
    first = build(Lattice, seed=3).state_dict()
    torch.manual_seed(2)
    torch.rand(17)
    second = build(Lattice, seed=3).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = build(Lattice, seed=4).state_dict()
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


def test_a_mixer_alone_starts_as_it_does_inside_the_model():
    inside = build(Lattice, seed=5).blocks[1].mixer
    alone = Lattice(d_model=16, causal=True)
    init_parameters(alone, 5, "blocks.1.mixer")
    for name, value in alone.state_dict().items():
        assert torch.equal(value, inside.state_dict()[name]), name
    assert not inside.conv.bias.any()
    assert not inside.q_scale.any()
    assert inside.out_gate.item() == 1


def test_a_constructor_without_reset_parameters_is_left_alone():
    class Mine(Mixer):
        def __init__(self) -> None:
            super().__init__(d_model=16, causal=True)
            self.proj = nn.Linear(16, 16)
            nn.init.eye_(self.proj.weight)
            nn.init.constant_(self.proj.bias, 7.0)

        def forward(self, x):
            return self.proj(x)

    model = LanguageModel(vocab_size=20, d_model=16, make_mixer=Mine)
    init_parameters(model, 0)
    for block in model.blocks:
        assert torch.equal(block.mixer.proj.weight, torch.eye(16))
        assert (block.mixer.proj.bias == 7).all()


def test_special_initial_values_have_their_distribution():
    lattice = Lattice(d_model=4096, causal=True)
    init_parameters(lattice, 0)
    assert lattice.conv.weight.std().item() == pytest.approx(0.5, rel=0.03)
    assert lattice.write_proj.weight.std().item() == pytest.approx(4096**-0.5, rel=0.05)
    assert not lattice.write_proj.bias.any()
