"""What Hydra, OmegaConf and YAML say about a configuration, as one line that names the key."""

from __future__ import annotations

import re
import shlex
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    OmegaConfBaseException,
    ValidationError,
)

from mixbench.config.check import mistyped, several_loggers
from mixbench.config.settings import GROUPS
from mixbench.config.targets import earlier_names, target
from mixbench.core.errors import SettingError, nearest, unknown_key
from mixbench.core.plugins import config_folder


def yaml_error(error: yaml.YAMLError | UnicodeDecodeError, path: object = None) -> SettingError:
    """The error for a file that is not YAML, or not text.

    Args:
        error: What reading it raised.
        path: The file; None where the error itself has to say.
    """
    if isinstance(error, UnicodeDecodeError):
        return SettingError(str(path), expected="YAML in UTF-8", got=error.reason)
    mark = getattr(error, "problem_mark", None)
    got = str(getattr(error, "problem", None) or error).splitlines()[0]
    if mark is not None:
        path = path or mark.name
        got += f" in line {mark.line + 1}, column {mark.column + 1}"
    path = path or getattr(error, "name", None) or "configuration"
    return SettingError(str(path), expected="YAML", got=got)


def file_read(error: BaseException) -> str | None:
    """The file that Hydra was reading; an error in a file's bytes does not name it."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "load_config" and "full_path" in frame.f_locals:
            return str(frame.f_locals["full_path"])
    return None


def composition_error(error: Exception) -> SettingError:
    """What Hydra or OmegaConf says in several lines, as one that names the key."""
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return SettingError(
            group,
            expected=f"one of {', '.join(sorted(error.options))}",
            got=name,
            fix="pip install 'mixbench[optuna]'"
            if (group, name) == ("hydra/sweeper", "optuna")
            else nearest(name, error.options),
        )
    missing = str(error.missing_cfg_file) if isinstance(error, MissingConfigException) else ""
    if missing.startswith("logger/"):  # one of a list
        name = missing.partition("/")[2]
        known = sorted(path.stem for path in Path(config_folder(), "logger").glob("*.yaml"))
        return SettingError(
            "logger",
            expected=f"one of {', '.join(known)}, or one of your own",
            got=name,
            fix=nearest(name, known),
        )
    found = re.match(r"Ambiguous value for argument '([^=']+)=(.*)'$", str(error), re.MULTILINE)
    if found:
        key, value = found.groups()
        if key == "logger":
            return several_loggers(value)
        fix = f"-m runs a grid of them, {key}=[{value}] is a list"
        return SettingError(key, expected="one value", got=value, fix=fix)
    found = re.match(r"Additional config directory '(.*)' not found", str(error))
    if found:
        return SettingError("--config-dir", expected="a folder", got=found.group(1))
    if isinstance(error, OverrideParseException):
        return SettingError("override", expected="key=value", got=error.override)
    cause: BaseException = error
    while not isinstance(cause, OmegaConfBaseException) and (cause.__cause__ or cause.__context__):
        cause = cause.__cause__ or cause.__context__ or cause
    if not isinstance(cause, OmegaConfBaseException) or not cause.full_key:
        return SettingError("configuration", expected="one that composes", got=str(error))
    key = str(cause.full_key)
    _, merging, typed = str(error).partition(f"Error merging override {key}=")
    if merging and isinstance(cause, ValidationError):
        if "ListConfig" in str(cause.msg):
            return SettingError(key, expected="a list, [a,b]", got=typed)
        return mistyped(key, typed)
    if not isinstance(cause, (ConfigAttributeError, ConfigKeyError)):
        return SettingError(key, expected="a value", got=cause.msg or str(cause))
    group, _, name = key.partition(".")
    if group == "logger" and name and "." not in name:
        return SettingError(
            key, expected="a logger that is on", got="one that is off", fix=f"add logger={name}"
        )
    parent = cause.parent_node
    known = [str(name) for name in parent if name != "hydra"] if parent is not None else []
    renamed: Mapping[str, str] = {}
    if group in GROUPS and "_target_" in known and not OmegaConf.is_missing(parent, "_target_"):
        renamed = earlier_names(target(group, parent))
    return unknown_key(key, known, renamed)


def arguments_error(error: ValueError, arguments: Sequence[str]) -> SettingError | None:
    """What Hydra raises as a bare ValueError about the command line; None for any other."""
    if str(error).startswith("Config group override"):
        groups = (*GROUPS, "logger", "sweep")
        typed = [word.partition("=")[::2] for word in arguments]
        keys = [key for key, value in typed if value == "null" and (key in groups or "/" in key)]
        fix = "`mixbench list` shows them"
        key = (keys or ["group"])[0]
        return SettingError(key, expected="one of its choices", got="null", fix=fix)
    if str(error).startswith(("No completion plugin", "Expecting one subcommand")):
        got = shlex.join(word for word in arguments if not word.startswith("-"))
        expected = "install= or uninstall= with bash, zsh or fish"
        return SettingError("-sc", expected=expected, got=got or "nothing")
    return None
