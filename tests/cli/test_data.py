"""`mixbench data`: rows, counts, hashes and export of a task; every knob reaches the data."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mixbench.cli.data import digest
from mixbench.core.errors import SettingError
from mixbench.datasets.mqar import MQAR
from mixbench.runs.build import build_dataset
from tests.conftest import run_command

SMALL = ("dataset.num_train=20", "dataset.num_valid=6", "dataset.num_test=6", "batch_size=4")


@pytest.fixture
def show(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        return run_command("data", *arguments), *capfd.readouterr()

    return run


def test_rows_counts_and_hashes_are_shown(show, settings):
    code, out, err = show("dataset=mqar", "--rows", "2", *SMALL)
    assert code == 0, err
    task = MQAR(vocab_size=64, seq_len=32, num_pairs=4, num_train=20, num_valid=6, num_test=6)
    rows = task.generate("train", 0)
    lines = out.splitlines()
    assert [line.split()[1:] for line in lines if line.startswith("in ")] == [
        [str(token) for token in row] for row in rows.inputs[:2]
    ]
    labels = [line.split()[1:] for line in lines if line.startswith("label ")]
    assert labels[0] == ["." if label == -100 else str(label) for label in rows.targets[0]]
    (train,) = [line.split() for line in lines if line.strip().startswith("train ")]
    assert train[1:4] == ["20", "32", "80"]
    assert train[-1] == digest(rows)
    assert "chance level: accuracy 0.03125" in out


def test_what_each_token_is():
    task = MQAR(vocab_size=12, seq_len=16, num_pairs=2, num_train=5, num_valid=1, num_test=1)
    rows = task.generate("train", 0)
    roles = task.roles(rows)
    assert (roles[:, :4] == ["key", "value", "key", "value"]).all()
    assert ((roles == "query") == (rows.targets != -100)).all()
    assert (rows.inputs[roles == "filler"] == 0).all()


@pytest.mark.parametrize("name", ["rows.npz", "rows.jsonl"])
def test_an_export_holds_every_row(show, tmp_path, name):
    code, _, err = show("dataset=mqar", *SMALL, "--export", name)
    assert code == 0, err
    task = MQAR(vocab_size=64, seq_len=32, num_pairs=4, num_train=20, num_valid=6, num_test=6)
    if name.endswith("npz"):
        with np.load(tmp_path / name) as arrays:
            found = {split: arrays[f"{split}_inputs"] for split in ("train", "valid", "test")}
            assert (arrays["test_targets"] == task.generate("test", 0).targets).all()
    else:
        lines = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        found = {
            split: np.array([line["inputs"] for line in lines if line["split"] == split])
            for split in ("train", "valid", "test")
        }
    for split, inputs in found.items():
        assert (inputs == task.generate(split, 0).inputs).all()


def test_a_series_is_drawn(show, tmp_path):
    code, out, err = show("dataset=forecasting", "--rows", "3", "--plot", "series.png")
    assert code == 0, err
    assert (
        sum(" | " in line and set(line) & set("▁▂▃▄▅▆▇█") != set() for line in out.splitlines())
        == 3
    )
    assert (tmp_path / "series.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("dataset=mqra",), "did you mean 'mqar'"),
        (("--split", "trian"), "--split"),
        (("--rows", "0"), "at least 1"),
        (("--export", "rows.csv"), ".npz or .jsonl"),
        (("dataset.num_pairs=99",), "dataset.num_pairs"),
    ],
)
def test_a_mistake_is_one_line(show, arguments, says):
    code, out, err = show(*arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


# Every key of every dataset, with another value that it accepts.
OTHER_VALUES = {
    "mqar": {
        "vocab_size": 65, "seq_len": 34, "num_pairs": 3, "num_train": 21, "num_valid": 7,
        "num_test": 7, "curriculum_start_pairs": 2, "curriculum_end": None, "slot_exponent": 1.0,
        "filler": "random",
    },
    "forecasting": {
        "series": "mackey_glass", "seq_len": 31, "num_train": 21, "num_valid": 7, "num_test": 7,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_every_knob_reaches_the_data_or_is_refused(settings, name):
    """`curriculum_end` says when an epoch visits which rows; the training loop's tests have it."""
    plain = build_dataset(settings(f"dataset={name}", *SMALL, "model.d_model=8"))
    before = [digest(plain.generate(split, 0)) for split in ("train", "valid", "test")]
    knobs = settings(f"dataset={name}", *SMALL, "model.d_model=8").dataset
    assert set(knobs) - {"_target_"} == set(OTHER_VALUES[name])
    for knob, value in OTHER_VALUES[name].items():
        if value is None:
            continue
        try:
            other = build_dataset(settings(f"dataset={name}", *SMALL, f"dataset.{knob}={value}"))
        except SettingError:
            continue
        after = [digest(other.generate(split, 0)) for split in ("train", "valid", "test")]
        assert after != before, knob
