"""From a `_target_` to its class, from its keys to the constructor's arguments."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from mixbench.config.hydra_private import locate
from mixbench.core.errors import SettingError, nearest, unknown_key
from mixbench.core.overrides import is_number
from mixbench.core.plugins import reach_working_folder

# Named, not imported: PyTorch comes with the user's choice of a class, not before.
_BASES = {
    "mixer": "mixbench.mixers.base.Mixer",
    "dataset": "mixbench.datasets.base.Dataset",
}


KIND_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
}


def target(section: str, node: Mapping[str, Any]) -> type[Any]:
    """The class that a group's `_target_` names.

    Raises:
        SettingError: There is none, or it does not import.
    """
    path = node.get("_target_")
    if not isinstance(path, str) or not path:
        got = "nothing" if path is None else path
        raise SettingError(f"{section}._target_", expected="the dotted path of a class", got=got)
    reach_working_folder()
    try:
        found = locate(path)
    except (Exception, SystemExit) as error:  # whatever a user's module does when it is imported
        cause = error.__cause__ or error
        raise SettingError(
            f"{section}._target_",
            expected="the dotted path of a class that imports",
            got=f"{path} ({type(cause).__name__}: {str(cause).strip()})",
        ) from error
    if not isinstance(found, type):
        raise SettingError(f"{section}._target_", expected="a class", got=path)
    return found


def coerce(key: str, value: Any, hint: Any) -> Any:
    """The value as the annotated type: whole numbers become floats where floats are wanted.

    Raises:
        SettingError: It has another type, or is not finite.
    """
    if get_origin(hint) in (Union, types.UnionType):
        if value is None and type(None) in get_args(hint):
            return None
        options = [option for option in get_args(hint) if option is not type(None)]
        words = [option for option in options if option is str or get_origin(option) is Literal]
        if len(options) == 1 or (isinstance(value, str) and not words and options[0] in KIND_WORDS):
            return coerce(key, value, options[0])
        return value
    if get_origin(hint) in (tuple, list) and not isinstance(value, (list, tuple)):
        raise SettingError(key, expected="a list, [a,b]", got="null" if value is None else value)
    if get_origin(hint) is Literal:
        known = get_args(hint)
        if value not in known:
            raise SettingError(
                key,
                expected=f"one of {', '.join(map(str, known))}",
                got=value,
                fix=nearest(str(value), map(str, known)),
            )
        return value
    if hint is float and is_number(value):
        if not math.isfinite(value):
            raise SettingError(key, expected="a finite number", got=value)
        return float(value)
    if hint in KIND_WORDS and type(value) is not hint:
        raise SettingError(key, expected=KIND_WORDS[hint], got="null" if value is None else value)
    return value


def earlier_names(cls: type[Any]) -> Mapping[str, str]:
    """What a class says about its arguments' earlier names, see `Configured`."""
    renamed: Mapping[str, str] = getattr(cls, "renamed", {})
    return renamed


# Arguments that code passes to a group's class beside the configuration's keys.
_SUPPLIED = {"model": {"make_mixer"}, "optimizer": {"params"}}


def check_arguments(group: str, node: Any) -> dict[str, Any]:
    """A group's configuration, its keys those of its class's constructor, its values of the types.

    Raises:
        SettingError: They are not.
    """
    if not isinstance(node, dict):
        raise SettingError(group, expected="a configuration with a _target_", got=node)
    cls = target(group, node)
    base = _BASES.get(group)
    if base is not None and not issubclass(cls, locate(base)):
        expected = f"a subclass of {base}"
        raise SettingError(f"{group}._target_", expected=expected, got=node["_target_"])
    parameters = dict(inspect.signature(cls).parameters)
    for name in _SUPPLIED.get(group, set()):
        parameters.pop(name, None)
    try:
        hints = get_type_hints(cls.__init__)
    except (NameError, TypeError):  # a user's annotations may not resolve; then types go unchecked
        hints = {}
    checked = {}
    for key, value in node.items():
        if key == "_target_":
            checked[key] = value
        elif key in earlier_names(cls):
            raise unknown_key(f"{group}.{key}", parameters, earlier_names(cls))
        elif key not in parameters:
            raise SettingError(
                f"{group}.{key}",
                expected=f"a knob of {node['_target_']} ({', '.join(parameters)})",
                got="an unknown key",
                fix=nearest(key, parameters),
            )
        else:
            checked[key] = coerce(f"{group}.{key}", value, hints.get(key, Any))
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in node:
            raise SettingError(
                f"{group}.{key}", expected=f"a value, {node['_target_']} needs it", got="nothing"
            )
    return checked
