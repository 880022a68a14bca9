"""`mixbench new KIND NAME`: a working skeleton of a mixer or dataset in the user's folder."""

from __future__ import annotations

import argparse
import keyword
from collections.abc import Sequence
from pathlib import Path
from string import Template

from rich.text import Text

from mixbench.config.choices import choices
from mixbench.core.errors import Parser, SettingError, some_of
from mixbench.core.files import make_folder, write_bytes
from mixbench.core.plugins import located
from mixbench.display.console import make_console

# What can be made, and how it is looked at and tried.
KINDS = {
    "mixer": (
        "mixbench check --config-dir conf mixer={name}",
        "mixbench --config-dir conf mixer={name} dataset=mqar",
    ),
    "dataset": (
        "mixbench data --config-dir conf dataset={name}",
        "mixbench --config-dir conf dataset={name} mixer=attention",
    ),
}


_TEMPLATES = Path(__file__).parent / "templates"


def main(arguments: Sequence[str]) -> None:
    """Entry point of `mixbench new`.

    Raises:
        SettingError: Wrong arguments, or a file is there already.
        CannotWrite: The folder cannot be written to.
    """
    given = _parse(arguments)
    some_of("new", [given.kind], KINDS)
    files = skeleton(given.kind, given.name)
    folder: Path = given.folder
    for path in files:
        if (folder / path).exists():
            raise SettingError("new", expected=f"no {path} in {folder} yet", got="one")
    for path, text in files.items():
        make_folder((folder / path).absolute().parent, key="--folder")
        write_bytes(folder / path, text.encode())
    lines = [
        *(f"written: {folder / path}" for path in files),
        "from there:",
        *(f"  {command.format(name=given.name)}" for command in KINDS[given.kind]),
        f"  python -m pytest test_{given.name}.py",
    ]
    make_console().print(Text("\n".join(lines)), soft_wrap=True)


def skeleton(kind: str, name: str) -> dict[str, str]:
    """The files of a new mixer or dataset, by their path in the user's folder.

    Raises:
        SettingError: The name cannot be a module's, or something else has it.
    """
    key = f"new {kind}"
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise SettingError(key, expected="a name in snake_case", got=name)
    if name in {choice.name for choice in choices(f"{kind}s")}:
        raise SettingError(key, expected=f"a name that no {kind} has", got=name)
    if located(name) is not None:
        raise SettingError(key, expected="a name that no Python module has", got=name)
    templates = {
        f"{name}.py": f"{kind}.py.txt",
        f"conf/{kind}/{name}.yaml": f"{kind}.yaml.txt",
        f"test_{name}.py": f"test_{kind}.py.txt",
    }
    cls = "".join(part.capitalize() for part in name.split("_"))
    return {
        path: Template((_TEMPLATES / template).read_text()).substitute(name=name, cls=cls)
        for path, template in templates.items()
    }


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="mixbench new", description="A working skeleton in your folder.")
    parser.add_argument("kind", help=", ".join(KINDS))
    parser.add_argument("name", help="in snake_case; the class is called after it")
    parser.add_argument("--folder", type=Path, default=Path(), help="where (default: here)")
    return parser.parse_args(list(arguments))
