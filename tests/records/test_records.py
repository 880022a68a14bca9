"""A run's identity: what changes it, and what does not."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from mixbench.config.choices import mixer_names
from mixbench.core.files import write_bytes
from mixbench.records import folder as records
from mixbench.records import sources
from mixbench.records.folder import RunFolder
from mixbench.records.identity import code_version, files_read, identity_of
from mixbench.records.sources import source_files
from tests.support.documented import ROOT
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
        "lone_helper.py": "FACTOR = 1\n\ndef factor():\n    import lone_parts.inner as inner\n",
        "lone_parts/inner.py": "from . import deeper\n",
        "lone_parts/deeper.py": "FACTOR = 1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "unrelated.py").write_text("")
    found = {path for path in source_files("lone_scale") if path.is_relative_to(tmp_path)}
    assert found == {tmp_path / name for name in texts}
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


IDENTITIES = """
import json
from mixbench.config.choices import mixer_names
from mixbench.config.compose import composed_settings
from mixbench.records.identity import identity_of
runs = [[f"mixer={m}", "dataset=mqar"] for m in mixer_names()]
runs += [["dataset=forecasting", f"dataset.series={s}"] for s in ("sunspots", "co2")]
print(json.dumps({" ".join(run): identity_of(composed_settings(run)) for run in runs}))
"""


def test_a_changed_file_moves_the_runs_that_use_it_and_no_others(tmp_path):
    """In a copy of the project: a new mixer and dataset, a changed op, changed data."""
    for name in ("mixbench", "conf"):
        shutil.copytree(ROOT / name, tmp_path / name)

    def identities() -> dict[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", IDENTITIES],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return dict(json.loads(done.stdout))

    def moved_by(*changes: tuple[str, str]) -> set[str]:
        nonlocal before
        for name, text in changes:
            path = tmp_path / name
            path.write_text((path.read_text() if path.exists() else "") + text)
        after = identities()
        assert after.keys() >= before.keys()
        moved = {run for run in before if before[run] != after[run]}
        before = after
        return moved

    before = identities()
    assert len(set(before.values())) == len(before) >= 8
    new = (tmp_path / "mixbench" / "mixers" / "local.py").read_text()
    yaml = (tmp_path / "conf" / "mixer" / "local.yaml").read_text().replace("local.", "toy.")
    task = (tmp_path / "mixbench" / "datasets" / "mqar.py").read_text()
    task_yaml = (tmp_path / "conf" / "dataset" / "mqar.yaml").read_text().replace("mqar.M", "toy.M")
    assert not moved_by(
        ("mixbench/mixers/toy.py", new),
        ("conf/mixer/toy.yaml", yaml),
        ("mixbench/datasets/toy.py", task),
        ("conf/dataset/toy.yaml", task_yaml),
        ("mixbench/report/html.py", "# changed\n"),
    )
    assert "mixer=toy dataset=mqar" in before
    delta = {"mixer=gated_deltanet dataset=mqar", "mixer=lattice dataset=mqar"}
    sunspots = "dataset=forecasting dataset.series=sunspots"
    assert moved_by(
        ("mixbench/ops/gated_delta_rule.py", "# changed\n"),
        ("mixbench/datasets/series/sunspots.csv", "2009,3.1\n"),
    ) == {*delta, sunspots}
    assert moved_by(("mixbench/train/trainer.py", "# changed\n")) == before.keys()


CSV_TASK = """
from pathlib import Path
from mixbench.datasets.forecasting import Forecasting

class FromFile(Forecasting):
    def __init__(self, *, path: str, other: str = "") -> None:
        super().__init__()
        self.values = [float(line) for line in Path(path).read_text().splitlines()]
"""


def test_a_changed_line_of_a_users_data_moves_the_runs_that_read_it(
    settings, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "csv_task.py").write_text(CSV_TASK)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("1.0\n2.0\n")
    runs = {
        name: replace(
            settings("dataset=forecasting"),
            dataset={"_target_": "csv_task.FromFile", "path": str(tmp_path / name)},
        )
        for name in ("a.csv", "b.csv")
    }
    before = {name: identity_of(run) for name, run in runs.items()}
    (tmp_path / "a.csv").write_text("1.0\n2.5\n")
    assert identity_of(runs["a.csv"]) != before["a.csv"]
    assert identity_of(runs["b.csv"]) == before["b.csv"]
    assert list(files_read(runs["a.csv"])) == ["a.csv"]
    (tmp_path / "a.csv").write_text("1.0\n2.0\n")
    assert identity_of(runs["a.csv"]) == before["a.csv"]


def test_files_of_one_name_count_each(settings, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "csv_task.py").write_text(CSV_TASK)
    paths = [tmp_path / folder / "a.csv" for folder in ("one", "two")]
    for number, path in enumerate(paths):
        path.parent.mkdir()
        path.write_text(f"{number}\n")
    node = {"_target_": "csv_task.FromFile", "path": str(paths[0]), "other": str(paths[1])}
    run = replace(settings("dataset=forecasting"), dataset=node)
    found = {identity_of(run)}
    for path in paths:
        path.write_text("5\n")
        found.add(identity_of(run))
    assert len(found) == 3
    assert files_read(run).keys() == {"a.csv"}


def test_the_packages_that_compute_hold_no_code_of_their_own(settings):
    """Importing a module runs its packages' `__init__`, which identities leave out."""
    paths = {
        path
        for mixer in mixer_names()
        for path in source_files(settings(f"mixer={mixer}").mixer["_target_"].rpartition(".")[0])
    }
    packages = {path.parent for path in paths}
    assert {"mixers", "parts", "ops", "cpu"} <= {package.name for package in packages}
    for package in packages:
        assert len(ast.parse((package / "__init__.py").read_text()).body) == 1, package


def test_a_result_is_read_again_only_when_its_file_has_changed(tmp_path, monkeypatch):
    folder = RunFolder.at(fabricate(tmp_path, valid=0.25))
    reads = []
    read = records.bounded_text
    monkeypatch.setattr(records, "bounded_text", lambda path: reads.append(path) or read(path))
    for _ in range(3):
        result = folder.read_result()
        assert result is not None
        assert result.metrics["valid/accuracy"] == 0.25
    assert folder.verified_result() is result
    assert reads == [folder.result]
    changed = folder.result.read_text().replace("0.25", "0.75")  # as long as it was
    folder.result.write_text(changed)
    result = folder.read_result()
    assert result is not None
    assert result.metrics["valid/accuracy"] == 0.75
    folder.result.write_text(changed[:-20])
    assert folder.read_result() is None
    write_bytes(folder.result, changed.encode())
    assert folder.read_result() == result
    folder.result.unlink()
    assert folder.read_result() is None


@pytest.mark.parametrize("place", range(0, 100, 7))
def test_whatever_is_overwritten_in_a_result_shows(tmp_path, place):
    """Also within a text, where the file stays JSON of the right shape."""
    folder = RunFolder.at(fabricate(tmp_path))
    result = folder.read_result()
    folder.write_result(result)
    assert folder.read_result() == result
    content = bytearray(folder.result.read_bytes())
    at = len(content) * place // 100
    content[at : at + 3] = b"abc"
    folder.result.write_bytes(content)
    assert folder.read_result() is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", "0"),
        ("seed", True),
        ("margin", None),
        ("status", "done"),
        ("metrics", {"valid/accuracy": "0.5", "test/accuracy": 0.5}),
        ("metrics", {"valid/accuracy": 0.5}),
        ("names", {"dataset": "mqar"}),
        ("config", {"dataset": {"_target_": "m.D"}}),
        ("operations", None),
        ("parameters", {"total": 3}),
        ("signature", {"of": 1}),
        ("analysis", {"title": "t", "values": {}, "bound": {"state_size": [1.0]}}),
        ("machine", {"system": "Linux", "cpus": "two"}),
    ],
)
def test_what_we_would_not_write_is_no_result(tmp_path, key, value):
    folder = RunFolder.at(fabricate(tmp_path))
    assert folder.read_result() is not None
    content = json.loads(folder.result.read_text())
    folder.result.write_text(json.dumps({**content, key: value}))
    assert folder.read_result() is None
