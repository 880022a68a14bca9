"""`mixbench list`: what there is, from files alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mixbench.config.choices import KINDS, choices
from tests.config.test_conf import CONF, names
from tests.conftest import run_command


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_is_listed_with_a_line_about_it(kind):
    found = {choice.name: choice for choice in choices(kind)}
    expected = {path.stem for path in (CONF / KINDS[kind]).glob("*.yaml")} - {"none"}
    assert set(found) == expected
    assert all(choice.summary for choice in found.values())


def test_knobs_forms_and_papers_of_mixers():
    found = {choice.name: choice for choice in choices("mixers")}
    assert set(found) == set(names("mixer"))
    assert found["lattice"].knobs["addr_scale"] == 2.0
    assert "_target_" not in found["lattice"].knobs
    assert (found["lattice"].causal, found["attention"].causal) == ("only", "both")
    assert found["gated_deltanet"].source == "arXiv 2412.06464"  # from the YAML
    assert found["attention"].source == "arXiv 1706.03762"  # from the docstring


def test_a_folder_of_ones_own_is_listed_without_importing_it(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")
    (tmp_path / "conf" / "mixer").mkdir(parents=True)
    (tmp_path / "conf" / "mixer" / "mine.yaml").write_text("_target_: my_mixer.Mine\ngain: 1.5\n")
    (tmp_path / "my_mixer.py").write_text(
        'raise RuntimeError("imported")\n\n\nclass Mine:\n    """Averages (arXiv 1234.56789)."""\n'
    )
    assert run_command("list", "mixers", "--config-dir", tmp_path / "conf") == 0
    out = " ".join(capfd.readouterr().out.split())
    assert "mine Averages (arXiv 1234.56789). [yours]" in out
    assert "gain=1.5" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(("mixer",), "did you mean 'mixers'"), (("mixers", "--config-dir", "nowhere"), "a folder")],
)
def test_a_mistake_is_one_line(capfd, arguments, says):
    assert run_command("list", *arguments) == 2
    err = capfd.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_a_file_that_is_no_yaml_is_named(tmp_path, capfd):
    (tmp_path / "mixer").mkdir()
    (tmp_path / "mixer" / "bad.yaml").write_text("a: [1\n")
    assert run_command("list", "--config-dir", tmp_path) == 2
    assert "bad.yaml: expected YAML" in capfd.readouterr().err


def test_listing_imports_no_torch():
    code = "import sys; from mixbench.cli.list import main; main([]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")


@pytest.mark.parametrize("width", [60, 100])
def test_no_terminal_is_too_narrow_for_a_knob(capfd, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run_command("list", "mixers") == 0
    out = capfd.readouterr().out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= width
