"""Every key of `conf/` with its default, its type and what it is, for `reference.py`.

A key's description is its comment in the YAML, behind it or directly above it; else the `Args` of
the class that its file builds, or of that class's bases; else the comment of what it lies in.
Types are the schema's and the constructors'.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from yaml_comments import SEVERAL_LINES, Leaf, content, leaves, sentence, summary

from mixbench.config.comparison_schema import ComparisonSchema
from mixbench.config.settings import TYPES
from mixbench.config.targets import target
from mixbench.core.overrides import as_override
from mixbench.core.plugins import config_folder

TYPE_NAMES: dict[Any, str] = {
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
    str: "text",
    list: "list",
    dict: "mapping",
    type(None): "`null`",
}


@dataclass(frozen=True)
class Entry:
    """One key: as it is typed, its default as the YAML has it, its type or values, what it is."""

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


def conf() -> Path:
    """The folder that the page describes."""
    return Path(config_folder())


def groups() -> list[str]:
    """The groups, those that `train.yaml` composes first and in its order."""
    folders = {path.parent for path in conf().rglob("*.yaml")} - {conf()}
    names = sorted(folder.relative_to(conf()).as_posix() for folder in folders)
    first = list(default_choices())
    order = {name: i for i, name in enumerate(first)}
    return sorted(names, key=lambda name: (order.get(name.partition("/")[0], len(first)), name))


def names(group: str) -> list[str]:
    """The choices of a group."""
    return sorted(path.stem for path in (conf() / group).glob("*.yaml"))


def default_choices() -> dict[str, str]:
    """The groups that the entry point composes, and its choice in each."""
    pairs = [text.split("=") for text in composed_with(conf() / "train.yaml", overrides=False)]
    return {group: name for group, name in pairs if group}


def composed_with(path: Path, overrides: bool = True) -> list[str]:
    """What a file composes with, as its defaults list says it: `group=NAME`."""
    texts = []
    for item in content(path).get("defaults", []):
        pairs = item.items() if isinstance(item, dict) else [(group_of(path), item)]
        for group, name in pairs:
            if overrides or not group.startswith("override "):
                texts.append(f"{group.rpartition(' ')[2].lstrip('/')}={name}")
    return texts


def group_of(path: Path) -> str:
    """The group of a file; an empty string for the entry point."""
    place = path.parent.relative_to(conf()).as_posix()
    return "" if place == "." else place


def package_of(path: Path) -> str:
    """Where the keys of a file go; an empty string for the top level."""
    stated = re.search(r"^# @package (\S+)", path.read_text())
    package = stated.group(1) if stated else group_of(path).replace("/", ".")
    return "" if package == "_global_" else package


def section_of(path: Path) -> str:
    """What a file is about: where its keys go, or its group if that is the top level."""
    return package_of(path) or group_of(path).partition("/")[0]


def keys(path: Path) -> dict[str, Leaf]:
    """The keys of a YAML as they are typed on the command line."""
    prefix = f"{package_of(path)}.".lstrip(".")
    return {prefix + key: leaf for key, leaf in leaves(path).items() if key != "defaults"}


def class_of(path: Path) -> type[Any] | None:
    """The class whose arguments a file's keys are; None if its sources are not ours.

    A file of a subgroup (`dataset/preset`) belongs to the class of the file that composes it.
    """
    group = group_of(path)
    users = sorted((conf() / group.partition("/")[0]).glob("*.yaml"))
    users = [each for each in users if any(t.startswith(f"{group}=") for t in composed_with(each))]
    for each in (path, *users):
        leaf = keys(each).get(f"{section_of(each)}._target_")
        # Docstrings and annotations of others change from version to version.
        if leaf is not None and leaf.source.startswith("mixbench."):
            return target(group, {"_target_": leaf.source})
    return None


def entries() -> list[Entry]:
    """All entries of the page; keys that several files have come several times."""
    pairs = [(group, name) for group in groups() if group != "sweep" for name in names(group)]
    inside = [entry for group, name in pairs for entry in choice(group, name).entries]
    return [*top_level(), *inside, *comparison_keys(), *hydra_keys()]


def top_level() -> list[Entry]:
    """The keys of the one entry point that are no group."""
    found = {key: leaf for key, leaf in keys(conf() / "train.yaml").items() if "." not in key}
    # A key that the YAML does not set is to be shown as well.
    for key in (*TYPES, "sweep"):
        if key not in default_choices():
            found.setdefault(key, Leaf("???", None))
    rows = []
    for key, leaf in found.items():
        hint = TYPES.get(key, type(leaf.value))
        if get_origin(hint) is Literal and leaf.value not in get_args(hint):
            hint = str  # what is typed, auto, becomes one of them
        rows.append(Entry(key, default_of(leaf), kind_of_hint(hint), leaf.comment or leaf.around))
    return rows


def choice(group: str, name: str) -> Choice:
    """One file of a group, read."""
    path = conf() / group / f"{name}.yaml"
    found, section = keys(path), section_of(path)
    own = found.pop(f"{section}._target_", None)
    cls = class_of(path)
    hints = {} if cls is None else get_type_hints(cls.__init__)
    texts = {} if cls is None else arguments(cls)
    inside, sets = [], {}
    for key, leaf in found.items():
        part = key.removeprefix(f"{section}.")
        if part == key:
            sets[key] = leaf.source
        else:
            text = leaf.comment or texts.get(part, "") or leaf.around
            kind = kind_of_hint(hints[part]) if part in hints else kind_of_value(leaf.value)
            inside.append(Entry(key, default_of(leaf), kind, text))
    built = "" if own is None else own.source
    return Choice(group, name, summary(path), built, composed_with(path), sets, inside)


def comparison_keys() -> list[Entry]:
    """The keys with which a sweep describes a comparison."""

    def visit(schema: type[Any], place: str) -> Iterator[Entry]:
        hints, texts = get_type_hints(schema), arguments(schema)
        for each in fields(schema):
            value = each.default_factory() if each.default is MISSING else each.default
            default = '""' if value == "" else "{}" if value == {} else as_override(value)
            hint = hints[each.name]
            key = place + each.name
            yield Entry(key, f"`{default}`", kind_of_hint(hint), texts.get(each.name, ""))
            for inner in filter(is_dataclass, get_args(hint)):
                yield from visit(inner, f"{key}.NAME.")

    return list(visit(ComparisonSchema, "sweep."))


def hydra_keys() -> list[Entry]:
    """Hydra's own keys that any of our files sets, once each."""
    found: dict[str, Entry] = {}
    files = [path for path in conf().rglob("*.yaml") if path.parent.parent != conf() / "hydra"]
    for path in sorted(files, key=lambda path: (path.stem != "train", path)):
        for key, leaf in keys(path).items():
            # A grid's choices are those of whatever it varies.
            if key.startswith("hydra.") and not key.startswith("hydra.sweeper.params."):
                text = leaf.comment or leaf.around
                if key not in found or not found[key].text:
                    found[key] = Entry(key, default_of(leaf), kind_of_value(leaf.value), text)
    return list(found.values())


def arguments(cls: type[Any]) -> dict[str, str]:
    """What the docstrings of a class and its bases say of arguments and attributes."""
    found: dict[str, str] = {}
    for each in cls.__mro__:
        for section in re.split(r"\n(?=\S)", inspect.cleandoc(each.__doc__ or "")):
            head, _, body = section.partition("\n")
            if re.match(r"(Args|Attributes)\b.*:$", head):
                for name, text in re.findall(r"^    (\w+): (.+(?:\n {5,}.+)*)", body, re.MULTILINE):
                    text = re.sub(r"(?<!`)\bNone\b(?!`)", "null", " ".join(text.split()))
                    found.setdefault(name, sentence(text))
    return found


def default_of(leaf: Leaf) -> str:
    """A key's default as it is shown."""
    if leaf.source == "???":
        return "set by the dataset"
    return leaf.source if leaf.source == SEVERAL_LINES else f"`{leaf.source}`"


def kind_of_hint(hint: Any) -> str:
    """An annotation in words."""
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(kind_of_hint(each) for each in get_args(hint))
    if get_origin(hint) is list:
        return f"list of {kind_of_hint(get_args(hint)[0])}"
    return TYPE_NAMES.get(get_origin(hint) or hint, "as described")


def kind_of_value(value: Any) -> str:
    """The type of a value that is not annotated; of a `${key}`, that of the key."""
    followed = re.fullmatch(r"\$\{([\w.]+)\}", str(value))
    if followed:
        hint = TYPES.get(followed[1])
        return f"as `{followed[1]}`" if hint is None else kind_of_hint(hint)
    # What ruamel.yaml reads are subclasses, and true is a whole number in Python.
    return next(name for cls, name in TYPE_NAMES.items() if isinstance(value, cls))
