"""What was chosen in each group: its name, and the keys that its YAML takes from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from mixbench.config.settings import GROUPS

# `lr: ${lr}` in a YAML: one value that two keys show.
_WHOLE_INTERPOLATION = re.compile(r"\$\{([\w.]+)\}")


@dataclass(frozen=True)
class Chosen:
    """One group's choice.

    Attributes:
        name: What is typed, `GROUP=NAME`; of a file that only points at another one, the other's.
        node: The group's keys as the YAML has them, before overrides and interpolation.
    """

    name: str
    node: Mapping[str, Any]

    def named(self, target: str) -> str:
        """What a run with this choice is called: by the YAML, or by the class put in its place."""
        if self.node.get("_target_") == target:
            return self.name.replace("/", "-")
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", target.rpartition(".")[2])
        return words.lower()

    def follows(self) -> dict[str, str]:
        """Keys that show another key's value under the same name, `lr: ${lr}`, by dotted path."""
        return {
            path: match[1]
            for path, text in _leaves(self.node)
            if (match := _WHOLE_INTERPOLATION.fullmatch(text))
            and match[1].rpartition(".")[2] == path.rpartition(".")[2]
        }


def chosen(hydra_cfg: Any) -> dict[str, Chosen]:
    """What was chosen in each group that makes a run, from the `hydra` node."""
    folders = [
        Path(source.path) for source in hydra_cfg.runtime.config_sources if source.schema == "file"
    ]
    return {group: _read(folders, group, str(hydra_cfg.runtime.choices[group])) for group in GROUPS}


def _read(folders: list[Path], group: str, choice: str) -> Chosen:
    found = (folder / group / f"{choice}.yaml" for folder in folders)
    path = next((path for path in found if path.is_file()), None)
    if path is None:  # of a package's own kind of source: nothing is known of it but its name
        return Chosen(choice, {})
    content, is_global = _load(path, path.stat().st_mtime_ns)
    bases = [text for text in content.get("defaults") or () if isinstance(text, str)]
    bases = [text.removeprefix(f"/{group}/") for text in bases if text != "_self_"]
    own = content.get(group) or {} if is_global else content
    node = {key: value for key, value in own.items() if key != "defaults"}
    below = [_read(folders, group, base) for base in bases]
    if len(below) == 1 and content.keys() == {"defaults"}:
        return below[0]
    merged: dict[str, Any] = {}
    for part in [*(each.node for each in below), node]:
        merged |= part
    return Chosen(choice, merged)


@lru_cache(maxsize=256)
def _load(path: Path, changed: int) -> tuple[dict[str, Any], bool]:
    """A YAML's content, and whether its keys are the configuration's rather than the group's."""
    text = path.read_text()
    is_global = re.search(r"^#\s*@package\s+_global_\s*$", text, re.MULTILINE) is not None
    return yaml.safe_load(text) or {}, is_global


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The texts in a node, each with its dotted path."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, str):
        yield path, node
