"""`docs/configuration.md`: made from `conf/` and the sources, current, and complete."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from mixbench import reference
from mixbench.overrides import flat
from tests.test_conf import CONF

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"


def rows() -> dict[str, tuple[str, str, str]]:
    """Default, type and description by key, from the page's tables."""
    cells = re.findall(r"^\| `([\w.]+)` \| (.*) \| (.*) \| (.*) \|$", PAGE.read_text(), re.M)
    return {key: (default, kind, text) for key, default, kind, text in cells}


def keys_of(path: Path) -> Iterator[tuple[str, object]]:
    """A YAML's keys as they are typed, and their values."""
    package = re.search(r"^# @package (\S+)", path.read_text())
    place = "_global_" if path.parent == CONF else ".".join(path.parent.relative_to(CONF).parts)
    prefix = package.group(1) if package else place
    content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    for key, value in flat(content).items():
        if key != "defaults":
            yield (key if prefix == "_global_" else f"{prefix}.{key}"), value


def test_the_page_is_what_the_sources_give():
    assert PAGE.read_text() == reference.reference(), "stale: `make docs` writes it anew"


def test_every_entry_says_what_it_is_and_its_type():
    entries = reference.entries()
    assert len(entries) > 100
    assert [entry.key for entry in entries if not (entry.text and entry.kind)] == []


@pytest.mark.parametrize(
    "path", sorted(CONF.rglob("*.yaml")), ids=lambda path: path.relative_to(CONF).as_posix()
)
def test_every_key_of_every_yaml_is_on_the_page(path):
    page, known = PAGE.read_text(), rows()
    assert path.relative_to(CONF).as_posix() in page
    for key, value in keys_of(path):
        if key.endswith("._target_"):
            assert f"Builds `{value}`." in page
            continue
        key = re.sub(r"^sweep\.(arms|tasks)\.\w+", r"sweep.\1.NAME", key)
        # What a user names lies below a mapping.
        key = re.sub(r"^(sweep\.arms\.NAME\.(?:grid|inherit)|sweep\.ablations)\..*", r"\1", key)
        key = re.sub(r"^(hydra\.sweeper\.params)\..*", r"\1", key)
        assert key in known
        assert all(known[key]), key


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
        ("dataset.filler", "`zero`", "`zero`, `random`, `disjoint`", "published"),
        ("sweep.arms.NAME.grid", "`{}`", "mapping", "combinations"),
        ("sweep.tasks.NAME.margin", "`null`", "number or `null`", "smallest difference"),
        ("hydra.help.footer", "several lines", "text", "--help"),  # the comment around it
    ],
)
def test_defaults_types_and_descriptions(key, default, kind, says):
    found = rows()[key]
    assert found[:2] == (default, kind)
    assert says in found[2]


@pytest.fixture
def own_conf(tmp_path, monkeypatch) -> Path:
    """A copy of `conf/` that the reference reads instead."""
    shutil.copytree(CONF, tmp_path / "conf")
    monkeypatch.setattr(reference, "_root", lambda: tmp_path / "conf")
    return tmp_path / "conf"


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
    )
    found = reference.choice("mixer", "odd")
    assert (found.summary, found.target) == ("What it is.", "torch.nn.Identity")
    assert [(each.key, each.default, each.kind, each.text) for each in found.entries] == [
        ("mixer.odd.first", "`'#5'`", "text", "Behind."),
        ("mixer.odd.second", "`[1, 2]`", "list", "Above, on two lines."),
        ("mixer.odd.third.inner", "`null`", "`null`", "Around."),
        ("mixer.odd.third.other", "`1e-8`", "number", "Its own."),
    ]


def test_a_key_that_nobody_describes_is_named(own_conf, capsys):
    (own_conf / "mixer" / "bare.yaml").write_text("# Bare.\n_target_: torch.nn.Identity\nknob: 3\n")
    assert reference.main() == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("no description of mixer.knob; ")
