"""Settings as text, as they are typed on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Words that Hydra reads as something else than a string.
_WORDS = ("null", "true", "false", "inf", "nan")


def override_key(text: str) -> str:
    """The key of an override as it is typed: `+mixer.x=3` -> `mixer.x`."""
    return text.lstrip("+~").partition("=")[0].partition("@")[0]


def as_override(value: Any) -> str:
    """A value as Hydra's override grammar reads it back."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(as_override, value))}]"
    if isinstance(value, str) and (
        not re.fullmatch(r"[A-Za-z_][\w./-]*", value) or value.lower() in _WORDS
    ):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return str(value)


def is_number(value: Any) -> bool:
    """Whether a setting is a number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def flat(node: Mapping[str, Any], separator: str = ".", path: str = "") -> dict[str, Any]:
    """A nested mapping with its keys joined, by dots if nothing else is said."""
    out: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            out |= flat(value, separator, f"{path}{key}{separator}")
        else:
            out[f"{path}{key}"] = value
    return out
