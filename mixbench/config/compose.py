"""Composing a configuration outside Hydra's entry point."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

from mixbench.config.check import check
from mixbench.config.settings import Settings
from mixbench.core.errors import SettingError
from mixbench.core.overrides import override_key
from mixbench.core.plugins import config_folder


def compose_config(overrides: Sequence[str], config_dir: Path | None = None) -> DictConfig:
    """What the command would compose from overrides, with the `hydra` node.

    Args:
        overrides: As typed.
        config_dir: A folder of the user's own configurations.

    Raises:
        SettingError: There is no such folder.
    """
    texts = with_own_class(overrides)
    if config_dir is not None:
        if not config_dir.is_dir():
            raise SettingError("--config-dir", expected="a folder", got=config_dir)
        texts.append(f"hydra.searchpath=[{json.dumps(f'file://{config_dir.absolute()}')}]")
    with hydra.initialize_config_dir(config_folder(), version_base="1.3"):
        return hydra.compose("train", texts, return_hydra_config=True)


def composed_settings(overrides: Sequence[str], config_dir: Path | None = None) -> Settings:
    """What `compose_config` composes, checked.

    Raises:
        SettingError: Something in it is wrong.
    """
    cfg = compose_config(overrides, config_dir)
    return check(cfg, cfg.hydra, overrides)


def with_own_class(overrides: Sequence[str]) -> list[str]:
    """The overrides, where `mixer._target_=...` alone stands for `mixer=custom` and its knobs."""
    keys = [override_key(text) for text in overrides]
    if "mixer._target_" not in keys or "mixer" in keys:
        return list(overrides)
    added = [
        f"++{text}" if key.startswith("mixer.") and text.startswith("mixer.") else text
        for key, text in zip(keys, overrides, strict=True)
    ]
    return ["mixer=custom", *added]


def config_folders(hydra_cfg: Mapping[str, Any]) -> list[str]:
    """The user's own configuration folders as arguments, from the `hydra` node."""
    sources = hydra_cfg["runtime"]["config_sources"]
    paths = [source["path"] for source in sources if source["provider"] == "command-line"]
    return [text for path in paths for text in ("--config-dir", path)]
