"""The console that all commands write to."""

from __future__ import annotations

import os

from rich.console import Console


class _PipedConsole(Console):
    """Lets `mixbench ... | head` end as other commands end in it."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def make_console() -> Console:
    """The terminal's console; where there is none, wide enough for a grid's table."""
    console = _PipedConsole()
    return console if console.is_terminal or "COLUMNS" in os.environ else _PipedConsole(width=120)
