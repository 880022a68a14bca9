"""`mixbench new`: the skeleton works as it is written."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import run_command

SMALL = ("steps=2", "dataset.num_train=16", "dataset.num_valid=8", "dataset.num_test=8")
KINDS = [("mixer", "fading_sum"), ("dataset", "first_token")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder, forgotten by Python afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for _, name in KINDS:
        sys.modules.pop(name, None)


def test_the_mixer_trains_and_passes_every_check(folder, capfd):
    assert run_command("new", "mixer", "fading_sum") == 0
    said = capfd.readouterr().out
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.*")} == {
        "fading_sum.py", "conf/mixer/fading_sum.yaml", "test_fading_sum.py"
    }  # fmt: skip
    assert "mixbench check --config-dir conf mixer=fading_sum" in said
    own = ("--config-dir", "conf", "mixer=fading_sum")
    assert run_command("check", *own, "--json", "--skip", "growth,torch_compile") == 0
    mixers = json.loads(capfd.readouterr().out)["mixers"]
    assert [each["causal"] for each in mixers] == [True, False]
    assert not [c for each in mixers for c in each["checks"] if c["status"] == "failed"]
    streamed = [c["status"] for c in mixers[0]["checks"] if c["check"] == "streaming"]
    assert streamed == ["passed"]
    for task in ("mqar", "forecasting"):
        assert run_command(*own, f"dataset={task}", "batch_size=8", *SMALL) == 0
    assert "signature: 1/1 hold" in capfd.readouterr().out
    assert run_command("list", "mixers", "--config-dir", "conf") == 0
    assert "[yours]" in capfd.readouterr().out


def test_the_dataset_is_shown_and_trained_on(folder, capfd):
    assert run_command("new", "dataset", "first_token") == 0
    said = capfd.readouterr().out
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.*")} == {
        "first_token.py", "conf/dataset/first_token.yaml", "test_first_token.py"
    }  # fmt: skip
    assert "mixbench data --config-dir conf dataset=first_token" in said
    own = ("--config-dir", "conf", "dataset=first_token")
    assert run_command("data", *own) == 0
    assert "accuracy 0.125" in capfd.readouterr().out
    for mixer in ("attention", "lattice"):
        assert run_command(*own, f"mixer={mixer}", "steps=2", "dataset.num_eval=8") == 0
        assert "completed" in capfd.readouterr().out
    assert run_command(*own, "dataset.seq_len=1") == 2
    assert "seq_len: expected" in capfd.readouterr().err
    assert run_command("list", "datasets", "--config-dir", "conf") == 0
    assert "[yours]" in capfd.readouterr().out


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_its_own_tests_pass_and_its_style_is_clean(folder, kind, name):
    assert run_command("new", kind, name) == 0
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*tests, f"test_{name}.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    for command in (["check", "--select", "E,F,I,B,UP"], ["format", "--check"]):
        style = [sys.executable, "-m", "ruff", *command, "--line-length", "100", "."]
        done = subprocess.run(style, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_another_folder(folder):
    assert run_command("new", "mixer", "fading_sum", "--folder", "research/mine") == 0
    assert (folder / "research" / "mine" / "conf" / "mixer" / "fading_sum.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("model", "mine"), "new: expected some of mixer, dataset, got model"),
        (("mixer", "attention"), "a name that no mixer has, got attention"),
        (("dataset", "mqar"), "new dataset: expected a name that no dataset has, got mqar"),
        (("mixer", "numpy"), "a name that no Python module has, got numpy"),
        (("mixer", "My-Mixer"), "a name in snake_case, got My-Mixer"),
        (("mixer", "class"), "a name in snake_case, got class"),
        (("mixer",), "the following arguments are required: name"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(folder, capfd, arguments, says):
    assert run_command("new", *arguments) == 2
    err = capfd.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert not list(folder.iterdir())


def test_nothing_is_overwritten(folder, capfd):
    (folder / "test_fading_sum.py").write_text("mine")
    assert run_command("new", "mixer", "fading_sum") == 2
    assert "expected no test_fading_sum.py in" in capfd.readouterr().err
    assert (folder / "test_fading_sum.py").read_text() == "mine"
    assert not (folder / "fading_sum.py").exists()
