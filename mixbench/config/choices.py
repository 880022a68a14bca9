"""What there is to choose: mixers, datasets, models, sweeps and presets, with their keys."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mixbench.config.hydra_errors import yaml_error
from mixbench.core.plugins import config_folder, located, plugins

# What can be listed, and the folder of the configuration that holds it.
KINDS = {
    "mixers": "mixer",
    "datasets": "dataset",
    "models": "model",
    "sweeps": "sweep",
    "presets": "dataset/preset",
    "loggers": "logger",
}


# Every mixer has these; they are not its knobs.
_COMMON = ("_target_", "d_model", "causal", "defaults", "hydra")


_ARXIV = re.compile(r"arXiv:? ?(\d{4}\.\d{4,5})")


@dataclass(frozen=True)
class Choice:
    """One file of the configuration.

    Attributes:
        name: What is typed, `mixer=NAME`.
        summary: The file's first comment.
        knobs: Keys and their values, as they are written.
        causal: Which forms a mixer has; None for what is no mixer.
        source: The paper, as far as the file or the class's docstring names one.
        target: The class; None where the file is another one's short name.
        origin: Empty for ours, `yours` for a folder of the user's, else the installed package.
    """

    name: str
    summary: str
    knobs: Mapping[str, Any]
    causal: str | None
    source: str
    target: str | None
    origin: str


def choices(kind: str, config_dir: Path | None = None) -> list[Choice]:
    """All choices of a kind: ours, those of installed packages and of the user's folder, by name.

    Of several with one name, the first of these is what Hydra takes.

    Raises:
        SettingError: A file is not YAML.
    """
    folders = [("", Path(config_folder())), *plugins().items()]
    if config_dir is not None:
        folders.append(("yours", config_dir))
    found: dict[str, Choice] = {}
    for origin, folder in folders:
        for path in sorted((folder / KINDS[kind]).glob("*.yaml")):
            if path.stem != "none" and path.stem not in found:
                found[path.stem] = _choice(path, KINDS[kind], origin, config_dir)
    return [found[name] for name in sorted(found)]


def mixer_names(config_dir: Path | None = None) -> list[str]:
    """The mixers that `mixer=NAME` chooses, each once: no short names, nothing without a class."""
    return [each.name for each in choices("mixers", config_dir) if each.target not in (None, "???")]


def _choice(path: Path, group: str, origin: str, config_dir: Path | None) -> Choice:
    try:
        text = path.read_text()
        node = yaml.safe_load(text) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise yaml_error(error, path) from error
    comments = [line[1:].strip() for line in text.splitlines() if line.startswith("#")]
    summary = next((line for line in comments if line and not line.startswith("@")), "")
    part = node.get(group.split("/")[0], node) if isinstance(node, dict) else {}
    part = part if isinstance(part, dict) else {}
    if group == "sweep":
        part = {"arms": ", ".join((node.get("sweep") or {}).get("arms") or {})}
    target = part.get("_target_")
    docstring = _docstring(target, config_dir) if isinstance(target, str) else ""
    source = _ARXIV.search(text) or _ARXIV.search(docstring)
    return Choice(
        name=path.stem,
        summary=summary or docstring.partition("\n")[0],
        knobs={key: value for key, value in part.items() if key not in _COMMON},
        causal=_causal(part) if group == "mixer" else None,
        source=f"arXiv {source.group(1)}" if source else "",
        target=target if isinstance(target, str) else None,
        origin=origin,
    )


def _causal(node: Mapping[str, Any]) -> str:
    if "causal" not in node:
        return ""
    value = node["causal"]
    if isinstance(value, bool):
        return "only" if value else "never"
    return "both"


def _docstring(target: str, config_dir: Path | None) -> str:
    """The docstring of a class by its dotted path, from its source."""
    module, _, name = target.rpartition(".")
    places = [str(config_dir.parent)] if config_dir is not None else []
    spec = located(module, [*places, str(Path(__file__).parent.parent), str(Path.cwd())])
    path = Path(spec.origin) if spec is not None and spec.origin else None
    if path is None or path.suffix != ".py":
        return ""
    try:
        tree = ast.parse(path.read_text())
    except (OSError, SyntaxError, ValueError):
        return ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return ast.get_docstring(node) or ""
    return ""
