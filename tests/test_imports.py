"""What import-linter's contracts in pyproject.toml cannot say."""

from __future__ import annotations

import ast

from mixbench import api
from mixbench.config.choices import choices, mixer_names
from tests.support.documented import ROOT


def imports(path):
    """Names of modules that a file imports."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield str(node.module)


def test_a_mixer_imports_no_other_mixer():
    """Shared pieces are in `mixers/parts`; the list of mixers is that of `conf/`."""
    targets = {each.name: each.target for each in choices("mixers")}
    modules = {str(targets[name]).rpartition(".")[0] for name in mixer_names()}
    assert len(modules) >= 6
    for module in modules:
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        assert not modules.intersection(imports(path)), path


def test_private_parts_of_hydra_are_used_by_the_configuration_and_the_command_only():
    users = {
        path.relative_to(ROOT / "mixbench").parts[0]
        for path in (ROOT / "mixbench").rglob("*.py")
        if any(name.startswith("hydra._internal") for name in imports(path))
    }
    assert users == {"config", "cli"}


def test_the_face_for_authors_says_the_same_to_people_and_to_type_checkers():
    tree = ast.parse((ROOT / "mixbench" / "api.py").read_text())
    (typed,) = [node for node in tree.body if isinstance(node, ast.If)]
    homes = {}
    for node in typed.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.name == alias.asname
            homes.setdefault(node.module, set()).add(alias.name)
    assert homes == {home: set(names) for home, names in api._HOMES.items()}
    for names in homes.values():
        assert all(getattr(api, name) is not None for name in names)
