"""The configuration reference, `docs/reference.py`: complete, and right as far as it is committed.

A new YAML need not be on the committed page for these tests to pass; `make docs` adds it.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from omegaconf import OmegaConf

from mixbench.core.overrides import flat
from tests.config.test_conf import CONF

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "configuration.md"


def script(name: str) -> ModuleType:
    """A script of `docs/`, which is no package, as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where those that follow find it
    spec.loader.exec_module(module)
    return module


yaml_comments, configuration_keys, reference = map(
    script, ("yaml_comments", "configuration_keys", "reference")
)


@pytest.fixture(scope="module")
def page() -> str:
    """The page as it would be written now."""
    return reference.page()


@pytest.fixture(scope="module")
def rows(page) -> dict[str, tuple[str, str, str]]:
    """Default, type and description by key, from the page's tables."""
    cells = re.findall(r"^\| `([\w.]+)` \| (.*) \| (.*) \| (.*) \|$", page, re.M)
    return {key: (default, kind, text) for key, default, kind, text in cells}


@pytest.fixture
def own_conf(tmp_path, monkeypatch) -> Path:
    """A copy of `conf/` that the reference reads instead."""
    shutil.copytree(CONF, tmp_path / "conf")
    monkeypatch.setattr(configuration_keys, "conf", lambda: tmp_path / "conf")
    return tmp_path / "conf"


def keys_of(path: Path) -> Iterator[tuple[str, object]]:
    """A YAML's keys as they are typed, and their values."""
    package = re.search(r"^# @package (\S+)", path.read_text())
    place = "_global_" if path.parent == CONF else ".".join(path.parent.relative_to(CONF).parts)
    prefix = package.group(1) if package else place
    content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    for key, value in flat(content).items():
        if key != "defaults":
            yield (key if prefix == "_global_" else f"{prefix}.{key}"), value


def outdated(committed: str, folder: Path) -> list[str]:
    """What differs on a page from what the sources give for the choices that are on it.

    The files of other choices are removed from `folder`, which the reference reads.
    """
    known = set(re.findall(r"\(\.\./conf/([\w/]+\.yaml)\)", committed))
    for path in folder.rglob("*.yaml"):
        if path.relative_to(folder).as_posix() not in known:
            path.unlink()
    pages = (committed.splitlines(), reference.page().splitlines())
    return list(difflib.unified_diff(*pages, "committed", "now", n=0, lineterm=""))


def test_what_is_on_the_committed_page_is_what_the_sources_give(own_conf):
    lines = outdated(PAGE.read_text(), own_conf)
    assert not lines, "\n".join(["`make docs` writes docs/configuration.md anew:", *lines])


def test_a_new_choice_need_not_be_on_the_committed_page(own_conf, page):
    yaml = (own_conf / "mixer" / "local.yaml").read_text()
    (own_conf / "mixer" / "quite_new.yaml").write_text(yaml)
    (own_conf / "dataset" / "preset" / "quite_new.yaml").write_text("# @package dataset\n# New.\n")
    now = reference.page()
    assert "### mixer=quite_new" in now
    assert "### dataset/preset=quite_new" in now
    assert outdated(page, own_conf) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("mixer/local.yaml", "window: 4", "window: 5", "+| `mixer.window` | `5` |"),
        ("mixer/local.yaml", "before the own", "after the own", "or after the own one"),
        ("mixer/local.yaml", "window: 4", "window: 4\nknob: 1", "+| `mixer.knob` | `1` |"),
        ("train.yaml", "lr: 3e-3", "lr: 1e-3", "-| `lr` | `3e-3` |"),
    ],
)
def test_an_entry_that_is_no_longer_right_is_shown(own_conf, page, file, old, new, says):
    path = own_conf / file
    path.write_text(path.read_text().replace(old, new))
    assert says in "\n".join(outdated(page, own_conf))


def test_a_choice_that_is_gone_is_shown(own_conf, page):
    (own_conf / "mixer" / "gdn.yaml").unlink()
    assert "-### mixer=gdn" in outdated(page, own_conf)


def test_every_entry_says_what_it_is_and_its_type():
    entries = configuration_keys.entries()
    assert len(entries) > 100
    assert [entry.key for entry in entries if not (entry.text and entry.kind)] == []


@pytest.mark.parametrize(
    "path", sorted(CONF.rglob("*.yaml")), ids=lambda path: path.relative_to(CONF).as_posix()
)
def test_every_key_of_every_yaml_is_on_the_page(path, page, rows):
    assert f"(../conf/{path.relative_to(CONF).as_posix()})" in page
    for key, value in keys_of(path):
        if key.endswith("._target_"):
            assert f"Builds `{value}`." in page
            continue
        key = re.sub(r"^sweep\.(arms|tasks)\.\w+", r"sweep.\1.NAME", key)
        # What a user names lies below a mapping.
        key = re.sub(r"^(sweep\.arms\.NAME\.(?:grid|inherit)|sweep\.ablations)\..*", r"\1", key)
        key = re.sub(r"^(hydra\.sweeper\.params)\..*", r"\1", key)
        assert key in rows
        assert all(rows[key]), key


@pytest.mark.parametrize(
    ("key", "default", "kind", "says"),
    [
        ("lr", "`3e-3`", "number", "rate"),  # a comment in train.yaml
        ("dtype", "`float32`", "`float32`, `float64`, `bfloat16`", "autocast"),
        ("device", "`auto`", "text", "cuda"),  # which becomes cpu or cuda
        ("batch_size", "set by the dataset", "whole number", "step"),
        ("mixer.radius", "`1`", "whole number", "side"),  # Args of the class, or the YAML
        ("mixer.num_heads", "`2`", "whole number", "divide `d_model`"),  # Args of a base
        ("mixer.retention_init", "`4.0`", "number", "gates"),
        ("optimizer.lr", "`${lr}`", "number", "as lr"),  # the type of what it follows
        ("hydra.launcher.additional_parameters", "`{}`", "mapping", "sbatch"),
        ("dataset.filler", "`zero`", "`zero`, `random`, `disjoint`", "published"),
        ("sweep.arms.NAME.grid", "`{}`", "mapping", "combinations"),
        ("sweep.tasks.NAME.margin", "`null`", "number or `null`", "smallest difference"),
        ("hydra.help.footer", "several lines", "text", "--help"),  # the comment around it
    ],
)
def test_defaults_types_and_descriptions(rows, key, default, kind, says):
    assert rows[key][:2] == (default, kind)
    assert says in rows[key][2]


def test_comments_behind_above_and_around(own_conf):
    (own_conf / "mixer" / "odd.yaml").write_text(
        "# @package mixer.odd\n"
        "# What it is.\n"
        "_target_: torch.nn.Identity\n"
        "first: '#5' # behind\n"
        "\n"
        "# above, on\n"
        "# two lines\n"
        "second: [1, 2]\n"
        "third: # around\n"
        "  inner: null\n"
        "  other: 1e-8 # its own\n"
        "  # above in it\n"
        "  text: |\n"
        "    one # no comment\n"
        "    two\n"
        "fourth:\n"
        "  - 1 # of an item\n"
        "fifth: {} # behind a mapping\n"
        "# far above\n"
        "\n"
        "sixth: true\n"
    )
    found = configuration_keys.choice("mixer", "odd")
    assert (found.summary, found.target) == ("What it is.", "torch.nn.Identity")
    assert [(each.key, each.default, each.kind, each.text) for each in found.entries] == [
        ("mixer.odd.first", "`'#5'`", "text", "Behind."),
        ("mixer.odd.second", "`[1, 2]`", "list", "Above, on two lines."),
        ("mixer.odd.third.inner", "`null`", "`null`", "Around."),
        ("mixer.odd.third.other", "`1e-8`", "number", "Its own."),
        ("mixer.odd.third.text", "several lines", "text", "Above in it."),
        ("mixer.odd.fourth", "several lines", "list", ""),
        ("mixer.odd.fifth", "`{}`", "mapping", "Behind a mapping."),
        ("mixer.odd.sixth", "`true`", "`true` or `false`", ""),
    ]


def test_a_key_that_nobody_describes_is_named(own_conf, capsys):
    (own_conf / "mixer" / "bare.yaml").write_text("# Bare.\n_target_: torch.nn.Identity\nknob: 3\n")
    assert reference.main() == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("no description of mixer.knob; ")
