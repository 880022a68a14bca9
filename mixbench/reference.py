"""The configuration reference, from `conf/` and the sources: every key with what it is.

    python -m mixbench.reference > docs/configuration.md

A key's description is its comment in the YAML, behind it or directly above it; else the `Args` of
the class that its file builds, or of that class's bases; else the comment of what it lies in.
Types are the schema's and the constructors'.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from omegaconf import OmegaConf

from mixbench.cli import compose_config
from mixbench.config import Settings, TrainSchema, target
from mixbench.overrides import as_override, flat
from mixbench.plugins import config_folder
from mixbench.records import short_name
from mixbench.study import ComparisonSchema, Study

_INTRODUCTION = """\
# Configuration

Every key that a command line or a YAML can set. Made from `conf/` and the sources by `make docs`;
to change a line, change the comment in the YAML or the `Args` of the class.

`key=value` sets a key and `group=NAME` chooses a file of a group; `-m` and several values, as in
`lr=1e-3,3e-3`, make a grid. `--cfg job` shows what a command line composes to and runs nothing,
`mixbench list` what there is to choose from, and `--config-dir DIR` adds a folder of your own with
the same groups. A value `${key}` follows that key. A key that does not exist, or a value of another
type, is an error before anything is written.
"""

_LINES = "several lines"
_NAMES: dict[Any, str] = {
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    str: "text",
    list: "list",
    dict: "mapping",
    type(None): "`null`",
}


@dataclass(frozen=True)
class Entry:
    """One key of the reference.

    Attributes:
        key: As it is typed.
        default: As it is written in the YAML.
        kind: Its type, or the values that it takes.
        text: What it is; empty where nobody has said so.
    """

    key: str
    default: str
    kind: str
    text: str


@dataclass(frozen=True)
class Choice:
    """One file of a group.

    Attributes:
        group: The group, `dataset/preset`.
        name: What is typed, `group=NAME`.
        summary: Its first comment.
        target: The class that it builds, or an empty string.
        takes: The other files that it composes with.
        sets: Keys outside its group and their values, as they are written.
        entries: The keys of its group.
    """

    group: str
    name: str
    summary: str
    target: str = ""
    takes: Sequence[str] = ()
    sets: Mapping[str, str] = field(default_factory=dict)
    entries: Sequence[Entry] = ()


def reference() -> str:
    """The whole page, as Markdown."""
    lines = [_INTRODUCTION]
    lines += ["## Top level", "", f"In {_link('train')}.", ""]
    lines += ["| group | default | choices |", "| --- | --- | --- |"]
    for group, default in _defaults().items():
        names = ", ".join(f"`{name}`" for name in _names(group))
        lines.append(f"| `{group}` | `{default}` | {names} |")
    lines += ["", *_table(top_level()), ""]
    for group in groups():
        lines += [f"## {group}", ""]
        lines += _sweeps() if group == "sweep" else _choices(group)
    lines += ["## hydra", "", "What of Hydra's own configuration our files set.", ""]
    lines += [*_table(hydra_keys()), ""]
    return "\n".join(lines)


def entries() -> list[Entry]:
    """All entries of the page; keys that several files have come several times."""
    pairs = [(group, name) for group in groups() if group != "sweep" for name in _names(group)]
    inside = [entry for group, name in pairs for entry in choice(group, name).entries]
    return [*top_level(), *inside, *description(), *hydra_keys()]


def groups() -> list[str]:
    """The groups, those that `train.yaml` composes first and in its order."""
    folders = {path.parent for path in _root().rglob("*.yaml")} - {_root()}
    names = sorted(folder.relative_to(_root()).as_posix() for folder in folders)
    first = list(_defaults())
    order = {name: i for i, name in enumerate(first)}
    return sorted(names, key=lambda name: (order.get(name.partition("/")[0], len(first)), name))


def top_level() -> list[Entry]:
    """The keys of the one entry point that are no group."""
    leaves = _leaves(_root() / "train.yaml")
    schema, settings = get_type_hints(TrainSchema), get_type_hints(Settings)
    known = [each.name for each in fields(TrainSchema) if each.name not in _defaults()]
    # A key of the schema that the YAML does not set is to be shown as well.
    missing = {key: _Leaf("???", None, "") for key in known if not _below(key, leaves)}
    found = []
    for key, leaf in {**leaves, **missing}.items():
        if key.startswith("hydra."):
            continue
        hint = schema.get(key, type(leaf.value))
        # What a setting becomes says more than what is typed, but where it becomes something else.
        if get_origin(settings.get(key)) is Literal and leaf.value in get_args(settings[key]):
            hint = settings[key]
        found.append(Entry(key, _default(leaf), _kind(hint), leaf.comment or leaf.around))
    return found


def description() -> list[Entry]:
    """The keys with which a sweep describes a comparison."""
    found = []
    hints = get_type_hints(ComparisonSchema)
    texts = _arguments(ComparisonSchema)
    for each in fields(ComparisonSchema):
        inner = [hint for hint in get_args(hints[each.name]) if isinstance(hint, type)]
        found.append(_described("sweep.", each, hints[each.name], texts))
        for schema in filter(is_dataclass, inner):
            parts, within = get_type_hints(schema), _arguments(schema)
            for part in fields(schema):
                place = f"sweep.{each.name}.NAME."
                found.append(_described(place, part, parts[part.name], within))
    return found


def hydra_keys() -> list[Entry]:
    """Hydra's own keys that any of our files sets, once each."""
    found: dict[str, Entry] = {}
    files = [path for path in _root().rglob("*.yaml") if path.parent.parent != _root() / "hydra"]
    for path in sorted(files, key=lambda path: (path.stem != "train", path)):
        for key, leaf in _leaves(path).items():
            # A grid's choices are those of whatever it varies.
            if key.startswith("hydra.") and not key.startswith("hydra.sweeper.params."):
                text = leaf.comment or leaf.around
                if key not in found or not found[key].text:
                    found[key] = Entry(key, _default(leaf), _kind(type(leaf.value)), text)
    return list(found.values())


def choice(group: str, name: str) -> Choice:
    """One file of a group, read."""
    path = _root() / group / f"{name}.yaml"
    leaves = _leaves(path)
    section = _section(path)
    own = leaves.pop(f"{section}._target_", None)
    cls = _class(group, path)
    hints = {} if cls is None else get_type_hints(cls.__init__)
    texts = {} if cls is None else _arguments(cls)
    found, sets = [], {}
    for key, leaf in leaves.items():
        part = key.removeprefix(f"{section}.")
        if part == key:
            sets[key] = leaf.source
        else:
            text = leaf.comment or texts.get(part, "") or leaf.around
            kind = _kind(hints[part]) if part in hints else _kind_of(leaf.value)
            found.append(Entry(key, _default(leaf), kind, text))
    built = "" if own is None else own.source
    return Choice(group, name, _summary(path), built, _takes(path), sets, found)


@dataclass(frozen=True)
class _Leaf:
    """A key of a YAML: its value as it is written and as it is read, and its comments."""

    source: str
    value: Any
    comment: str
    around: str = ""
    """The comment of what it lies in."""


def _root() -> Path:
    return Path(config_folder())


def _names(group: str) -> list[str]:
    return sorted(path.stem for path in (_root() / group).glob("*.yaml"))


def _defaults() -> dict[str, str]:
    """The groups that the entry point composes, and its choice in each."""
    node = yaml.safe_load((_root() / "train.yaml").read_text())
    mappings = [item for item in node["defaults"] if isinstance(item, dict)]
    pairs = [pair for item in mappings for pair in item.items()]
    return {group: name for group, name in pairs if not group.startswith("override ")}


def _takes(path: Path) -> list[str]:
    """What a file composes with, as its defaults list says it."""
    items = (yaml.safe_load(path.read_text()) or {}).get("defaults", [])
    texts = []
    for item in items:
        pairs = item.items() if isinstance(item, dict) else [(path.parent.name, item)]
        texts += [f"{group.rpartition(' ')[2].lstrip('/')}={name}" for group, name in pairs]
    return texts


def _class(group: str, path: Path) -> type[Any] | None:
    """The class whose arguments a file's keys are; None if its sources are not ours.

    A file of a subgroup (`dataset/preset`) belongs to the class of the file that composes it.
    """
    users = sorted((_root() / group.partition("/")[0]).glob("*.yaml"))
    users = [user for user in users if any(text.startswith(f"{group}=") for text in _takes(user))]
    for each in (path, *users):
        leaf = _leaves(each).get(f"{_section(each)}._target_")
        # Docstrings and annotations of others change from version to version.
        if leaf is not None and leaf.source.startswith("mixbench."):
            return target(group, {"_target_": leaf.source})
    return None


def _package(path: Path) -> str:
    """Where the keys of a file go; an empty string for the top level."""
    stated = re.search(r"^# @package (\S+)", path.read_text())
    place = ".".join(path.parent.relative_to(_root()).parts)
    package = stated.group(1) if stated else place
    return "" if package == "_global_" else package


def _section(path: Path) -> str:
    """What a file is about: where its keys go, or its group if that is the top level."""
    return _package(path) or path.relative_to(_root()).parts[0]


def _below(key: str, keys: Iterable[str]) -> bool:
    """Whether a key is among others, or one below it is."""
    return any(each == key or each.startswith(f"{key}.") for each in keys)


def _leaves(path: Path) -> dict[str, _Leaf]:
    """The keys of a YAML as they are typed on the command line, in its order."""
    text = path.read_text()
    node = yaml.compose(text)
    if node is None:
        return {}
    package = _package(path)
    prefix = f"{package}." if package else ""
    lines = text.splitlines()
    header = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    values = flat(OmegaConf.to_container(OmegaConf.load(path), resolve=False))  # type: ignore[arg-type]
    found: dict[str, _Leaf] = {}

    def visit(mapping: yaml.MappingNode, inside: str, around: str) -> None:
        for key, value in mapping.value:
            name = f"{inside}{key.value}"
            if name == "defaults":
                continue
            comment = _comment(lines, header, key, value)
            if isinstance(value, yaml.MappingNode) and value.value:
                visit(value, f"{name}.", comment or around)
            else:
                source = text[value.start_mark.index : value.end_mark.index].strip()
                if isinstance(value, yaml.ScalarNode) and value.style in ("|", ">"):
                    source = _LINES
                found[prefix + name] = _Leaf(source, values.get(name), comment, around)

    assert isinstance(node, yaml.MappingNode)
    visit(node, "", "")
    return found


def _comment(lines: Sequence[str], header: int, key: yaml.Node, value: yaml.Node) -> str:
    """The comment behind a key and its value, else the one directly above it."""
    line, column = key.end_mark.line, key.end_mark.column
    if value.start_mark.line == line and value.end_mark.line == line:
        column = value.end_mark.column
    behind = re.search(r"(?:^|\s)# ?(.*)$", lines[line][column:])
    if behind:
        return _sentence(behind.group(1))
    above: list[str] = []
    for text in reversed(lines[header : key.start_mark.line]):
        if not text.lstrip().startswith("#"):
            break
        above.insert(0, text.strip()[1:].strip())
    return _sentence(" ".join(above))


def _summary(path: Path) -> str:
    """The comments that a file begins with."""
    texts: list[str] = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        texts.append(line[1:].strip())
    return _sentence(" ".join(text for text in texts if not text.startswith("@package")))


def _arguments(cls: type[Any]) -> dict[str, str]:
    """What the docstrings of a class and its bases say of arguments and attributes."""
    found: dict[str, str] = {}
    for each in cls.__mro__:
        sections = re.split(r"\n(?=\S)", inspect.cleandoc(each.__doc__ or ""))
        for section in sections:
            head, _, body = section.partition("\n")
            if not re.match(r"(Args|Attributes)\b.*:$", head):
                continue
            for name, text in re.findall(r"^    (\w+): (.+(?:\n {5,}.+)*)", body, re.MULTILINE):
                text = re.sub(r"(?<!`)\bNone\b(?!`)", "null", " ".join(text.split()))
                found.setdefault(name, _sentence(text))
    return found


def _described(place: str, each: Any, hint: Any, texts: Mapping[str, str]) -> Entry:
    """A field of a schema."""
    value = each.default_factory() if each.default is MISSING else each.default
    default = '""' if value == "" else "{}" if value == {} else as_override(value)
    return Entry(place + each.name, f"`{default}`", _kind(hint), texts.get(each.name, ""))


def _kind(hint: Any) -> str:
    """An annotation in words."""
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_kind(each) for each in get_args(hint))
    if get_origin(hint) is list:
        return f"list of {_kind(get_args(hint)[0])}"
    if get_origin(hint) is dict:
        return "mapping"
    return _NAMES.get(hint, "as described")


def _kind_of(value: Any) -> str:
    """The type of a value that is not annotated; of a `${key}`, that of the key."""
    key = str(value).removeprefix("${").removesuffix("}")
    hints = get_type_hints(TrainSchema)
    return _kind(hints[key]) if value == f"${{{key}}}" and key in hints else _kind(type(value))


def _sentence(text: str) -> str:
    """A comment or docstring as a sentence; a name at its beginning stays as it is."""
    if re.match(r"[a-z]+(?![\w./(=])", text):
        text = text[0].upper() + text[1:]
    return text if not text or text.endswith((".", "?", "!")) else f"{text}."


def _choices(group: str) -> list[str]:
    found = [choice(group, name) for name in _names(group)]
    if len(found) > 1 and _alike(found):
        return _side_by_side(found)
    lines = []
    for each in found:
        group, name = each.group, each.name
        lines += [f"### {group}={name}", "", f"{each.summary} In {_link(f'{group}/{name}')}."]
        if each.target:
            lines.append(f"Builds `{each.target}`.")
        if each.takes:
            lines.append(f"Composed with {', '.join(f'`{text}`' for text in each.takes)}.")
        if each.sets:
            sets = ", ".join(f"`{key}: {value}`" for key, value in each.sets.items())
            lines.append(f"Sets {sets}.")
        lines.append("")
        if each.entries:
            lines += [*_table(each.entries), ""]
    return lines


def _alike(found: Sequence[Choice]) -> bool:
    """Whether files set the same keys of one class, and nothing else."""
    keys = {tuple((each.key, each.kind, each.text) for each in one.entries) for one in found}
    return len(keys) == 1 and not any(one.target or one.takes or one.sets for one in found)


def _side_by_side(found: Sequence[Choice]) -> list[str]:
    keys = [entry.key for entry in found[0].entries]
    lines = [f"| choice | what it is | {' | '.join(f'`{key}`' for key in keys)} |"]
    lines.append(f"| {' | '.join(['---'] * (len(keys) + 2))} |")
    for each in found:
        values = [entry.default for entry in each.entries]
        cells = [_link(f"{each.group}/{each.name}", each.name), _cell(each.summary), *values]
        lines.append(f"| {' | '.join(cells)} |")
    shared = [Entry(each.key, "as chosen", each.kind, each.text) for each in found[0].entries]
    return [*lines, "", *_table(shared), ""]


def _sweeps() -> list[str]:
    lines = [
        "A comparison is described under `sweep`; what else its file sets holds for all of its",
        "runs, which are those of selection, evaluation and ablations ([protocol](protocol.md)).",
        "",
        "| sweep | what it is | idea | baselines | tasks | trials an arm | runs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in _names("sweep"):
        summary = _cell(_summary(_root() / "sweep" / f"{name}.yaml"))
        cells = [_link(f"sweep/{name}", name), summary, *_numbers(name)]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", *_table(description()), ""]


def _numbers(name: str) -> list[str]:
    """A comparison in numbers; dashes for what is none."""
    cfg = compose_config([f"sweep={name}"])
    if cfg.sweep is None:
        return ["-"] * 5
    node = OmegaConf.to_container(cfg.sweep, resolve=True)
    assert isinstance(node, dict)
    described = {str(key): value for key, value in node.items()}
    study = Study(name, described, short_name(cfg.dataset))
    trials = dict.fromkeys(str(len(arm.trials)) for arm in study.arms.values())
    runs = str(sum(study.numbers().values()))
    names = [", ".join(part) for part in (study.ideas, study.baselines, study.tasks)]
    return [*names, ", ".join(trials), runs]


def _link(name: str, text: str = "") -> str:
    return f"[{text or f'conf/{name}.yaml'}](../conf/{name}.yaml)"


def _default(leaf: _Leaf) -> str:
    if leaf.source == "???":
        return "set by the dataset"
    return leaf.source if leaf.source == _LINES else f"`{leaf.source}`"


def _table(entries: Iterable[Entry]) -> Iterator[str]:
    yield "| key | default | type or values | what it is |"
    yield "| --- | --- | --- | --- |"
    for entry in entries:
        cells = [f"`{entry.key}`", *map(_cell, (entry.default, entry.kind, entry.text))]
        yield f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """Text for a table's cell: outside of code nothing means anything to Markdown."""
    parts = text.replace("|", "\\|").split("`")
    parts[::2] = [re.sub(r"([*<~\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def main() -> int:
    """Print the page; the exit code is 1 where a key has no description."""
    missing = sorted({entry.key for entry in entries() if not entry.text})
    if missing:
        fix = "write a comment into the YAML, or Args into the docstring"
        print(f"no description of {', '.join(missing)}; {fix}", file=sys.stderr)
        return 1
    print(reference(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
