"""Installed packages that add configurations, classes by `_target_` alone, and where both lie."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mixbench.config.compose import with_own_class
from mixbench.core import plugins
from tests.conftest import run_command

TINY = ("steps=1", "batch_size=4", "dataset.num_train=4", "dataset.num_valid=4",
        "dataset.num_test=4", "model.d_model=8")  # fmt: skip

MODULE = '''
from mixbench.mixers.base import Mixer


class Scale(Mixer):
    """Only scales (arXiv 2222.33333)."""

    def __init__(self, *, d_model: int, causal: bool, gain: float = 1.0) -> None:
        super().__init__(d_model=d_model, causal=causal)
        self.gain = gain

    def forward(self, x):
        return self.gain * x
'''


@pytest.fixture
def site(tmp_path):
    """A folder of installed packages, with one that registers configurations."""
    package = tmp_path / "site" / "their_mixers"
    (package / "conf" / "mixer").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "scale.py").write_text(MODULE)
    (package / "conf" / "mixer" / "scale.yaml").write_text(
        "# Only scales.\n_target_: their_mixers.scale.Scale\nd_model: ${model.d_model}\n"
        "causal: ${causal}\ngain: 1.0\n"
    )
    (package / "conf" / "mixer" / "attention.yaml").write_text("_target_: their_mixers.Trojan\n")
    metadata = tmp_path / "site" / "their_mixers-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-mixers\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[mixbench.configs]\ntheir_mixers = their_mixers.conf\n"
    )
    return tmp_path / "site"


@pytest.fixture
def installed(site, mixbench):
    """The command where that folder is among the installed packages."""

    def run(*arguments):
        return mixbench(*arguments, env={**os.environ, "PYTHONPATH": str(site), "COLUMNS": "200"})

    return run


def test_an_installed_package_adds_its_mixers(installed, tmp_path):
    done = installed("mixer=scale", "mixer.gain=2", *TINY)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "outputs" / "runs").glob("mqar-scale-*/result.json"))) == 1
    listed = installed("list", "mixers")
    assert "Only scales. (arXiv 2222.33333) [their_mixers]" in listed.stdout
    check = installed("check", "mixer=scale", "--only", "shape")
    assert check.returncode == 0, check.stderr


def test_ours_come_first(installed):
    done = installed("mixer=attention", "--cfg", "job")
    assert "mixbench.mixers.attention.Attention" in done.stdout


def test_listing_imports_nothing_of_the_package(installed, site):
    (site / "their_mixers" / "__init__.py").write_text('raise RuntimeError("imported")\n')
    (site / "their_mixers" / "conf" / "__init__.py").write_text('raise RuntimeError("imported")\n')
    done = installed("list", "mixers")
    assert done.returncode == 0, done.stderr
    assert "[their_mixers]" in done.stdout


def test_a_package_whose_folder_is_gone_is_left_out(installed, site):
    (site / "their_mixers-1.0.dist-info" / "entry_points.txt").write_text(
        "[mixbench.configs]\nx = nowhere.conf\n"
    )
    assert installed("list", "mixers").returncode == 0


def test_a_class_alone_in_the_working_folder(mixbench, tmp_path):
    """No YAML, no PYTHONPATH, no allowed_targets: it was typed."""
    (tmp_path / "my_own.py").write_text(MODULE)
    done = mixbench("mixer._target_=my_own.Scale", "mixer.gain=2.5", *TINY)
    assert done.returncode == 0, done.stderr
    done = mixbench("mixer._target_=my_own.Scale", "-m", "mixer.gain=1,2", *TINY)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "outputs" / "runs").glob("mqar-scale-*/result.json"))) == 3


@pytest.mark.parametrize(
    ("knob", "says"),
    [
        (
            "mixer.gian=1",
            "mixer.gian: expected a knob of tests.support.fake_task.Plain (d_model, causal",
        ),
        ("seed=0", "mixer.gain: expected a value, tests.support.fake_task.Plain needs it"),
        ("mixer.gain=big", "mixer.gain: expected a number, got big"),
    ],
)
def test_a_wrong_knob_of_a_class_alone(capfd, knob, says):
    assert run_command("mixer._target_=tests.support.fake_task.Plain", knob, *TINY) == 2
    assert says in capfd.readouterr().err


def test_the_choice_without_a_class_says_what_it_wants(capfd):
    assert run_command("mixer=custom", *TINY) == 2
    assert "mixer._target_: expected a value, got nothing" in capfd.readouterr().err


def test_which_overrides_stand_for_a_class_alone():
    assert with_own_class(["mixer=lattice", "mixer._target_=a.B"]) == [
        "mixer=lattice", "mixer._target_=a.B"
    ]  # fmt: skip
    assert with_own_class(["mixer.gain=1"]) == ["mixer.gain=1"]
    assert with_own_class(["lr=1", "mixer._target_=a.B", "+mixer.x=2", "mixer.y=3"]) == [
        "mixer=custom", "lr=1", "++mixer._target_=a.B", "+mixer.x=2", "++mixer.y=3"
    ]  # fmt: skip


def test_located_finds_without_importing(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "top_one").mkdir()
    (tmp_path / "top_one" / "__init__.py").write_text('raise RuntimeError("imported")\n')
    (tmp_path / "top_one" / "inner.py").write_text("")
    spec = plugins.located("top_one.inner")
    assert spec is not None
    assert spec.origin == str(tmp_path / "top_one" / "inner.py")
    assert plugins.located("top_one.nothing") is None
    assert plugins.located("top_one.inner.deeper") is None
    assert plugins.located("nowhere_at_all") is None
    assert "top_one" not in sys.modules


def test_commands_that_compose_know_installed_packages(site):
    """What our commands compose comes from the same search path."""
    code = (
        "from mixbench.config.compose import compose_config as c;"
        "print(c(['mixer=scale']).mixer._target_)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip
    assert done.stdout.strip() == "their_mixers.scale.Scale"
