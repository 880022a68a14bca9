"""`mixbench list`: what there is to choose from, read from the YAML files and the sources.

Never imports torch, nor what it lists.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from mixbench.config.choices import KINDS, Choice, choices
from mixbench.core.errors import Parser, SettingError, nearest
from mixbench.display.console import make_console


def main(arguments: Sequence[str]) -> None:
    """Entry point of `mixbench list`.

    Raises:
        SettingError: Wrong arguments.
    """
    given = _parse(arguments)
    if given.kind is not None and given.kind not in KINDS:
        raise SettingError(
            "list", expected=f"one of {', '.join(KINDS)}", got=given.kind,
            fix=nearest(given.kind, KINDS),
        )  # fmt: skip
    if given.config_dir is not None and not given.config_dir.is_dir():
        raise SettingError("--config-dir", expected="a folder", got=given.config_dir)
    console = make_console()
    for kind in [given.kind] if given.kind else KINDS:
        console.print(_table(kind, choices(kind, given.config_dir)))


def _table(kind: str, found: Sequence[Choice]) -> Table:
    table = Table(title=kind, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    table.add_column("what it is", ratio=3, overflow="fold")
    if kind == "mixers":
        table.add_column("causal")
    last = "arms" if kind == "sweeps" else "knobs and their defaults"
    table.add_column(last, ratio=4, overflow="fold")
    for choice in found:
        what = Text(choice.summary)
        if choice.source and choice.source not in choice.summary:
            what.append(f" ({choice.source})")
        if choice.origin:
            what.append(f" [{choice.origin.partition('.')[0]}]")
        knobs = choice.knobs.get("arms", "") if kind == "sweeps" else _knobs(choice.knobs)
        cells = [Text(choice.name), what, Text(knobs)]
        if kind == "mixers":
            cells.insert(2, Text(choice.causal or ""))
        table.add_row(*cells)
    return table


def _knobs(knobs: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_value(value)}" for key, value in knobs.items())


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="mixbench list", description="What there is to choose from.")
    parser.add_argument("kind", nargs="?", help=", ".join(KINDS))
    parser.add_argument("--config-dir", type=Path, help="a folder of configurations of your own")
    return parser.parse_args(list(arguments))
