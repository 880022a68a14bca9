"""The configuration tree: every file of every group composes, builds and trains a step."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf

from mixbench.config.settings import GROUPS, TYPES
from mixbench.core.plugins import config_folder
from mixbench.runs.run import run

CONF = Path(config_folder())


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


# All that name a class; `custom` leaves it to the command line (test_plugins.py).
MIXERS = [name for name in names("mixer") if name != "custom"]


@pytest.mark.parametrize("dataset", [*names("dataset"), *names("dataset/preset")])
@pytest.mark.parametrize("mixer", MIXERS)
def test_every_mixer_trains_a_step_on_every_dataset(settings, mixer, dataset):
    choice = f"dataset={dataset}" if dataset in names("dataset") else f"dataset/preset={dataset}"
    small = ("batch_size=2", "dataset.num_train=2", "dataset.num_valid=1", "dataset.num_test=1")
    outcome = run(settings(f"mixer={mixer}", choice, *small, "steps=1", "epochs=null"), [])
    assert outcome.result.status == "completed"
    assert outcome.result.steps == 1


@pytest.mark.parametrize("name", names("optimizer"))
def test_every_optimizer_trains_a_step(settings, name):
    outcome = run(settings(f"optimizer={name}", "steps=1", "epochs=null"), [])
    assert outcome.result.status == "completed"


def test_every_model_is_some_datasets_choice(settings):
    chosen = {settings(f"dataset={name}").model["_target_"] for name in names("dataset")}
    known = {OmegaConf.load(CONF / "model" / f"{name}.yaml")._target_ for name in names("model")}
    assert chosen == known


@pytest.mark.parametrize(
    ("preset", "vocab_size", "seq_len", "num_pairs"),
    [
        ("mqar_t64_k4", 8192, 64, 4),
        ("mqar_t128_k8", 8192, 128, 8),
        ("mqar_t256_k16", 8192, 256, 16),
        ("mqar_t512_k64", 8192, 512, 64),
    ],
)
def test_published_settings(settings, preset, vocab_size, seq_len, num_pairs):
    dataset = settings(f"dataset/preset={preset}").dataset
    chosen = (dataset["vocab_size"], dataset["seq_len"], dataset["num_pairs"])
    assert chosen == (vocab_size, seq_len, num_pairs)


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_yaml_names_every_knob_of_its_class(settings, mixer):
    """Keys are the constructor's arguments, so that nothing tunable hides in the code."""
    node = settings(f"mixer={mixer}").mixer
    signature = inspect.signature(get_object(node["_target_"]))
    assert set(node) - {"_target_"} == set(signature.parameters)
    assert all(p.kind is p.KEYWORD_ONLY for p in signature.parameters.values())


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group in GROUPS for name in names(group)]
)
def test_a_default_of_a_class_is_that_of_its_yaml(group, name):
    """So that who builds one in Python gets what the command would."""
    content = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{name}.yaml"), resolve=False)
    node = content.get(group, content)
    if not str(node.get("_target_")).startswith("mixbench."):
        pytest.skip("names no class of ours")
    parameters = inspect.signature(get_object(node["_target_"])).parameters
    defaults = {
        key: parameters[key].default
        for key in node.keys() & parameters.keys()
        if parameters[key].default is not inspect.Parameter.empty
        and not str(node[key]).startswith("${")
    }
    written = {key: node[key] for key in defaults}
    assert {key: _plain(value) for key, value in defaults.items()} == written


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


def test_every_file_starts_with_what_it_is():
    for path in CONF.rglob("*.yaml"):
        assert path.read_text().startswith("#"), path


def test_the_yaml_sets_keys_of_the_schema_only():
    assert set(OmegaConf.load(CONF / "train.yaml")) - {"defaults", "hydra"} <= set(TYPES)
