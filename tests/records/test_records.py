"""A run's identity: what changes it, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mixbench.core.files import write_bytes
from mixbench.records import folder as records
from mixbench.records import identity, sources
from mixbench.records.folder import RunFolder
from mixbench.records.identity import code_version, identity_of
from mixbench.records.sources import source_files
from tests.support.records import fabricate

MIXER = """
from mixbench.mixers.base import Mixer


class Scale(Mixer):
    def forward(self, x):
        return x
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of a user's, with a helper beside the mixer."""
    folder = tmp_path / "own_package"
    folder.mkdir()
    (folder / "scale.py").write_text(MIXER)
    (folder / "helper.py").write_text("FACTOR = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_the_code_of_a_users_class_and_of_its_package_is_part_of_the_identity(settings, package):
    mine = replace(settings(), mixer={"_target_": "own_package.scale.Scale", "d_model": 16})
    seen = [identity_of(mine), identity_of(mine)]
    (package / "scale.py").write_text(MIXER.replace("return x", "return 2 * x"))
    seen.append(identity_of(mine))
    (package / "helper.py").write_text("FACTOR = 2\n")
    seen.append(identity_of(mine))
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3
    assert code_version(settings()) != code_version(mine)


def test_of_a_very_large_package_only_the_module_counts(settings, package, monkeypatch):
    mine = replace(settings(), mixer={"_target_": "own_package.scale.Scale", "d_model": 16})
    monkeypatch.setattr(sources, "_MOST_FILES", 1)
    before = identity_of(mine)
    (package / "helper.py").write_text("FACTOR = 2\n")
    assert identity_of(mine) == before
    (package / "scale.py").write_text(MIXER + "\n")
    assert identity_of(mine) != before


def test_what_a_users_module_imports_counts_too(settings, tmp_path, monkeypatch):
    """A module alone in a folder, the modules beside it, and a package without `__init__.py`."""
    monkeypatch.syspath_prepend(tmp_path)
    texts = {
        "lone_scale.py": "import numpy, json\n\nfrom lone_helper import FACTOR\n" + MIXER,
        "lone_helper.py": "def factor():\n    import lone_parts.inner as inner\n    return inner\n",
        "lone_parts/inner.py": "from . import deeper\n",
        "lone_parts/deeper.py": "FACTOR = 1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "unrelated.py").write_text("")
    assert source_files("lone_scale") == {tmp_path / name for name in texts}
    mine = replace(settings(), mixer={"_target_": "lone_scale.Scale", "d_model": 16})
    seen = [identity_of(mine)]
    for name, text in texts.items():
        (tmp_path / name).write_text(text + "# changed\n")
        seen.append(identity_of(mine))
    assert len(set(seen)) == 5
    (tmp_path / "unrelated.py").write_text("# changed\n")
    assert identity_of(mine) == seen[-1]


def test_dependencies_that_are_installed_do_not_count(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages"
    for name, text in {
        "dep/__init__.py": "",
        "plug/__init__.py": "",
        "plug/m.py": "import dep",
    }.items():
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text(text)
    monkeypatch.syspath_prepend(installed)
    assert source_files("plug.m") == {
        installed / "plug" / "__init__.py",
        installed / "plug" / "m.py",
    }
    (tmp_path / "mine.py").write_text("import plug.m")
    monkeypatch.syspath_prepend(tmp_path)
    assert source_files("mine") == {tmp_path / "mine.py"}


def test_our_own_code_counts_but_for_what_only_shows_it(settings, tmp_path, monkeypatch):
    folder = tmp_path / "mixbench"
    (folder / "report").mkdir(parents=True)
    monkeypatch.setattr(identity, "_PACKAGE", folder)
    seen = []
    for path in ("training.py", "report/html.py", "training.py"):
        (folder / path).write_text(f"# {len(seen)}\n")
        identity._own_digest.cache_clear()
        seen.append(code_version(settings()))
    identity._own_digest.cache_clear()
    assert seen[0] == seen[1] != seen[2]


def test_a_result_is_read_again_only_when_its_file_has_changed(tmp_path, monkeypatch):
    folder = RunFolder.at(fabricate(tmp_path, valid=0.25))
    reads = []
    read = records.bounded_text
    monkeypatch.setattr(records, "bounded_text", lambda path: reads.append(path) or read(path))
    for _ in range(3):
        result = folder.read_result()
        assert result is not None
        assert result["metrics"]["valid/accuracy"] == 0.25
    assert folder.verified_result() is result
    assert reads == [folder.result]
    changed = folder.result.read_text().replace("0.25", "0.75")  # as long as it was
    folder.result.write_text(changed)
    result = folder.read_result()
    assert result is not None
    assert result["metrics"]["valid/accuracy"] == 0.75
    folder.result.write_text(changed[:-20])
    assert folder.read_result() is None
    write_bytes(folder.result, changed.encode())
    assert folder.read_result() == result
    folder.result.unlink()
    assert folder.read_result() is None
