"""Entry point of `mixbench`: a command, or a configuration to run."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from hydra._internal.utils import get_args_parser

from mixbench.cli.completion import completing, offer
from mixbench.cli.exit import exit_with_one_line
from mixbench.cli.run import train
from mixbench.config.check import refuse_own_keys
from mixbench.config.compose import with_own_class
from mixbench.core.errors import SettingError, nearest
from mixbench.core.interruption import handle_signals
from mixbench.core.plugins import config_folder
from mixbench.launch.base import prefer_our_launcher_presets

# Imported when called: they bring scipy, matplotlib or torch, which no other start needs.
_COMMANDS = {
    "report": "mixbench.cli.report",
    "bench": "mixbench.cli.bench",
    "check": "mixbench.cli.check",
    "list": "mixbench.cli.list",
    "new": "mixbench.cli.new",
    "data": "mixbench.cli.data",
}


def main() -> None:
    """Entry point of the console script."""
    with exit_with_one_line(), handle_signals():
        if sys.argv[1:] and sys.argv[1] in _COMMANDS:
            importlib.import_module(_COMMANDS[sys.argv[1]]).main(sys.argv[2:])
            return
        if completing(sys.argv[1:]) and not offer(_COMMANDS):
            return
        flags, overrides = _split_arguments(sys.argv[1:])
        _refuse_words(overrides)
        sys.argv[1:] = [*flags, *with_own_class(overrides)]
        refuse_own_keys(overrides)
        prefer_our_launcher_presets(config_folder())
        train()


def _split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Flags and overrides: Hydra refuses them mixed, as in `mixer=lattice -m lr=1e-3,3e-3`."""
    parser = get_args_parser()
    parser.error = _unknown_flag  # type: ignore[method-assign]
    overrides: list[str] = parser.parse_intermixed_args(arguments).overrides
    flags = list(arguments)
    for override in overrides:
        flags.remove(override)
    return flags, overrides


def _unknown_flag(message: str) -> NoReturn:
    raise SettingError("arguments", expected="flags as --hydra-help lists them", got=message)


def _refuse_words(overrides: Sequence[str]) -> None:
    """Refuse what is neither a command nor a setting, e.g. a mistyped command."""
    for text in overrides:
        if "=" not in text and not text.startswith("~"):
            raise SettingError(
                "command",
                expected=f"key=value or one of the commands {', '.join(_COMMANDS)}",
                got=text,
                fix=nearest(text, _COMMANDS),
            )
