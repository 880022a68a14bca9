"""A YAML's keys with their values as they are written and their comments, by ruamel.yaml."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.tokens import CommentToken

SEVERAL_LINES = "several lines"


@dataclass(frozen=True)
class Leaf:
    """A key whose value is no mapping, or an empty one.

    Attributes:
        source: The value as it is written.
        value: The value.
        comment: The comment behind the key, else the one directly above it.
        around: The comment of the innermost mapping around it that has one.
    """

    source: str
    value: Any
    comment: str = ""
    around: str = ""


def content(path: Path) -> Any:
    """What a YAML says; an empty mapping where it has comments only."""
    return _parser().load(path.read_text()) or CommentedMap()


def leaves(path: Path) -> dict[str, Leaf]:
    """The leaves of a YAML by dotted key, in its order."""
    root = content(path)
    lines = path.read_text().splitlines()
    comments = _by_line(root)
    for line in range(len(_header(path))):
        comments.pop(line, None)  # of the file, not of its first key
    found: dict[str, Leaf] = {}

    def visit(node: CommentedMap, inside: str, around: str) -> None:
        for key, value in node.items():
            comment = _comment(comments, lines, node.lc.key(key)[0])
            if isinstance(value, CommentedMap) and value:
                visit(value, f"{inside}{key}.", comment or around)
            else:
                found[f"{inside}{key}"] = Leaf(_written(value), value, comment, around)

    visit(root, "", "")
    return found


def summary(path: Path) -> str:
    """The comments that a YAML begins with, as a sentence."""
    texts = [line[1:].strip() for line in _header(path)]
    return sentence(" ".join(text for text in texts if not text.startswith("@package")))


def sentence(text: str) -> str:
    """A comment or docstring as a sentence; a name at its beginning stays as it is."""
    if re.match(r"[a-z]+(?![\w./(=])", text):
        text = text[0].upper() + text[1:]
    return text if not text or text.endswith((".", "?", "!")) else f"{text}."


def _parser() -> YAML:
    parser = YAML()
    parser.preserve_quotes = True
    parser.width = 10_000  # one line, however long
    parser.representer.add_representer(
        type(None), lambda self, _: self.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    return parser


def _header(path: Path) -> list[str]:
    return list(takewhile(lambda line: line.startswith("#"), path.read_text().splitlines()))


def _by_line(root: CommentedMap) -> dict[int, str]:
    """All comments by their line; ruamel.yaml keeps several lines in one token."""
    found = {}
    for token in _tokens(root):
        texts = token.value.strip("\n").split("\n")
        for i, text in enumerate(texts):
            if text.strip():
                found[token.start_mark.line + i] = text.strip()[1:].strip()
    return found


def _tokens(node: Any) -> Iterator[CommentToken]:
    """All comments in a node, wherever ruamel.yaml attaches them."""
    if isinstance(node, (CommentedMap, CommentedSeq)):
        yield from _flattened([node.ca.comment, *node.ca.items.values()])
        for child in node.values() if isinstance(node, CommentedMap) else node:
            yield from _tokens(child)


def _flattened(items: Iterable[Any]) -> Iterator[CommentToken]:
    for item in items:
        if isinstance(item, list):
            yield from _flattened(item)
        elif item is not None:
            yield item


def _comment(comments: dict[int, str], lines: list[str], line: int) -> str:
    """The comment on a key's line, else the one that ends in the line above."""
    if line in comments:
        return sentence(comments[line])
    above: list[str] = []
    while line - 1 in comments and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        above.insert(0, comments[line])
    return sentence(" ".join(above))


def _written(value: Any) -> str:
    """A value as its file has it; a list on one line."""
    if isinstance(value, (CommentedMap, CommentedSeq)):
        value.ca.comment = None  # the comment behind it
        value.fa.set_flow_style()
    stream = io.StringIO()
    _parser().dump({"key": value}, stream)
    text = stream.getvalue().removeprefix("key:").strip()
    return SEVERAL_LINES if "\n" in text else text
