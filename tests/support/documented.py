"""Pages that are run: their files are written and their commands called, in order.

A fenced block whose first line says a path after its language (`python my_lab/x.py`) is a
file. A `console` block holds commands behind `$ `, each followed by lines of its output: every line
shown must occur in it, numbers aside; `...` stands for lines left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    """A command line and the lines of its output that a page shows."""

    line: str
    shown: tuple[str, ...]


@dataclass(frozen=True)
class File:
    """A file that a page tells to write."""

    path: str
    text: str


def steps(page: Path) -> list[Command | File]:
    """What a page tells to do, in its order."""
    found: list[Command | File] = []
    for language, path, text in _BLOCK.findall(page.read_text()):
        if path:
            found.append(File(path, text))
        elif language == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                line, *shown = part.splitlines()
                found.append(Command(line, tuple(each for each in shown if each != "...")))
    return found


def take(step: Command | File, folder: Path, **environment: str) -> None:
    """Do one step in a folder.

    Raises:
        AssertionError: A command failed, or did not say what the page shows.
    """
    if isinstance(step, File):
        (folder / step.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / step.path).write_text(step.text)
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    known = {"PATH": path, "COLUMNS": "120", "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        step.line, shell=True, cwd=folder, env={**os.environ, **known}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{step.line}\n{done.stdout}{done.stderr}"
    said = _plain(done.stdout)
    for shown in step.shown:
        assert _plain(shown) in said, f"{step.line}\nshown: {shown}\nsaid:\n{done.stdout}"


def _plain(text: str) -> str:
    """Without what differs from run to run: numbers, and how wide a table is."""
    return re.sub(r"\s+", " ", re.sub(r"-?\d[\d.,]*(e[-+]?\d+)?", "#", text)).strip()
