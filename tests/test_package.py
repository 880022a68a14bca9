"""What is published: nothing is left out, and what is said twice is the same."""

from __future__ import annotations

import re
import sys
from importlib.metadata import metadata

import pytest
import yaml

import mixbench
from tests.support.documented import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_shipped():
    folders = {path.parent for path in (ROOT / "mixbench").rglob("__init__.py")}
    packages = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages | {"mixbench.conf"}


def test_the_version_comes_from_one_place():
    assert "version" not in PROJECT["project"]
    assert metadata("mixbench")["Version"] == mixbench.__version__
    changes = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changes[0] == mixbench.__version__


def test_the_workflow_tests_the_pythons_that_are_declared():
    declared = [
        text.rpartition(" ")[2]
        for text in PROJECT["project"]["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", text)
    ]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == declared
    assert PROJECT["project"]["requires-python"] == f">={declared[0]}"
