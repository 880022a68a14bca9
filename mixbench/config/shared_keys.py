"""One value, one place: keys that show another key's value, and keys that nothing uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from mixbench.config.chosen import Chosen
from mixbench.config.settings import GROUPS, SHARED_KEYS
from mixbench.core.errors import SettingError
from mixbench.core.overrides import as_override


def following_keys(
    cfg: DictConfig, choices: Mapping[str, Chosen], values: Mapping[str, Any]
) -> tuple[str, ...]:
    """The keys that show another key's value, in full.

    Raises:
        SettingError: One was given a value of its own: what it follows would say another one.
    """
    keys = []
    as_written = OmegaConf.to_container(cfg, resolve=False)
    for group, each in choices.items():
        for path, source in each.follows().items():
            key = f"{group}.{path}"
            node, _, name = key.rpartition(".")
            written = _value(as_written, node)
            if not isinstance(written, Mapping) or name not in written:
                continue  # taken out, for a class that has no such argument
            if written[name] != f"${{{source}}}":
                value = _value(values, key)
                raise SettingError(
                    key,
                    expected=f"no value of its own: it is always that of {source}",
                    got="null" if value is None else value,
                    fix=f"set {source}={as_override(value)}",
                )
            keys.append(key)
    return tuple(keys)


def unused_keys(cfg: DictConfig, values: Mapping[str, Any], typed: set[str]) -> tuple[str, ...]:
    """The keys that nothing in this configuration uses.

    Raises:
        SettingError: One was typed, and what has that setting has another value.
    """
    groups = OmegaConf.to_yaml(OmegaConf.masked_copy(cfg, list(GROUPS)))
    unused = []
    for key in SHARED_KEYS:
        if re.search(rf"\$\{{[^}}]*(?<![\w.]){key}(?![\w.])", groups):
            continue
        unused.append(key)
        own = {group: values[group][key] for group in GROUPS if key in values[group]}
        if key in typed and values[key] not in own.values():
            raise SettingError(
                key,
                expected="no value, for nothing here uses it",
                got=values[key],
                fix="; ".join(f"{group} has its own: {group}.{key}" for group in own),
            )
    if values["schedule"] == "constant":
        unused.append("warmup")
        if "warmup" in typed:
            raise SettingError(
                "warmup", expected="no value with schedule=constant", got=values["warmup"]
            )
    if values["device"] == "cuda":
        unused.append("cpu_capability")
    return tuple(unused)


def _value(node: Any, key: str) -> Any:
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
