"""What a run is called, and that its record states each value once, and none that nothing uses."""

from __future__ import annotations

import pytest

from mixbench.config.compose import composed_settings
from mixbench.records.identity import folder_of, identity_of

OWN = """\
# A lattice of mine.
defaults:
  - lattice

read_mode: nearest
"""

GLOBAL = """\
# @package _global_
# A window of mine.
defaults:
  - forecasting

dataset:
  seq_len: 16
"""


def names(*overrides, config_dir=None):
    return composed_settings(overrides, config_dir).names


def test_a_run_is_called_by_what_its_yaml_is_called():
    found = names("mixer=gated_deltanet", "dataset=forecasting")
    assert found == {
        "dataset": "forecasting",
        "model": "window_regressor",
        "mixer": "gated_deltanet",
        "optimizer": "adamw",
    }
    settings = composed_settings(["mixer=lattice"])
    assert folder_of(settings).path.name.startswith("mqar-lattice-seed0-")


def test_a_second_name_is_no_other_mixer():
    assert names("mixer=gdn", "dataset=sequence") == names(
        "mixer=gated_deltanet", "dataset=forecasting"
    )
    first, second = composed_settings(["mixer=gdn"]), composed_settings(["mixer=gated_deltanet"])
    assert folder_of(first) == folder_of(second)


def test_a_class_without_a_yaml_is_called_by_its_own_name():
    own = "mixer._target_=mixbench.mixers.gated_deltanet.GatedDeltaNet"
    for texts in (["mixer=custom"], ["mixer=attention", "~mixer.out_gate"]):
        assert names(*texts, own)["mixer"] == "gated_delta_net"


def test_a_yaml_of_ones_own_on_top_of_ours(tmp_path):
    for group, text in (("mixer", OWN), ("dataset", GLOBAL)):
        (tmp_path / group).mkdir()
        (tmp_path / group / "mine.yaml").write_text(text)
    settings = composed_settings(["mixer=mine", "dataset=mine"], tmp_path)
    assert (settings.names["mixer"], settings.names["dataset"]) == ("mine", "mine")
    assert settings.mixer["read_mode"] == "nearest"
    assert settings.dataset["seq_len"] == 16
    # What the YAML below it takes from elsewhere is known here as well.
    assert "mixer.d_model" in settings.follows


@pytest.mark.parametrize("mixer", ["attention", "gated_deltanet", "spiderweb"])
def test_the_record_states_each_value_once(mixer):
    recorded = composed_settings([f"mixer={mixer}", "dataset=forecasting", "lr=0.05"])
    config = recorded.recorded_settings()
    assert config["lr"] == 0.05
    assert config["optimizer"].keys() == {"_target_", "betas", "eps", "fused"}
    assert not {"d_model", "seq_len"} & config["mixer"].keys()
    assert recorded.optimizer["lr"] == 0.05  # the class is given it all the same


def test_what_nothing_uses_is_left_out_of_record_and_identity():
    """Gated DeltaNet has a convolution of its own, and none of attention's output gate."""
    used = composed_settings(["mixer=attention"]).recorded_settings()
    left_out = composed_settings(["mixer=gated_deltanet"]).recorded_settings()
    assert used.keys() - left_out.keys() == {"causal", "conv_width", "out_gate"}
    assert left_out["mixer"]["conv_width"] == 4
    same = composed_settings(["mixer=gated_deltanet", "conv_width=4", "causal=true"])
    assert identity_of(same) == identity_of(composed_settings(["mixer=gated_deltanet"]))
    assert "warmup" not in composed_settings(["schedule=constant"]).recorded_settings()
