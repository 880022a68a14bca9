"""What a shell offers when Tab is pressed: our commands; Hydra completes the settings."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from mixbench.config.choices import KINDS

# Commands that take settings as a run does.
_WITH_SETTINGS = ("check", "data", "bench")


def completing(arguments: Sequence[str]) -> bool:
    """Whether a shell asks what could stand where its cursor is."""
    return any(text in ("-sc", "--shell-completion") for text in arguments) and any(
        text.startswith("query=") for text in arguments
    )


def offer(commands: Collection[str]) -> bool:
    """Print what of ours fits the shell's line, and leave Hydra a line that it understands.

    Returns:
        Whether Hydra is to go on with it.
    """
    words = os.environ.get("COMP_LINE", "").split(" ")
    if len(words) <= 2:
        begun = words[-1] if len(words) == 2 else ""
        for command in sorted(commands):
            if command.startswith(begun):
                print(command)
        return True
    command, last = words[1], words[-1]
    if command not in commands:
        return True
    if command in _WITH_SETTINGS:
        os.environ["COMP_LINE"] = " ".join([words[0], *words[2:]])
        return True
    if command == "list" and len(words) == 3:
        print("\n".join(kind for kind in KINDS if kind.startswith(last)))
    return False  # the shell's own, files
