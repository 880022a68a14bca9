"""The checks that a composed configuration passes before anything is written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from mixbench.config.chosen import chosen
from mixbench.config.hardware import found_cpu_capability, found_device
from mixbench.config.settings import GROUPS, Settings, TrainSchema
from mixbench.config.shared_keys import following_keys, unused_keys
from mixbench.config.targets import KIND_WORDS, check_arguments, coerce
from mixbench.core.errors import SettingError, at_least, positive, unknown_key
from mixbench.core.overrides import override_key
from mixbench.core.plugins import plugin_packages

# Folders are ours to name, since a record's folder is found again by the run's identity.
_OWN_KEYS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.output_subdir")


_MOST_THREADS = 1024


_KNOWN = [each.name for each in fields(TrainSchema) if each.name != "sweep"]


def check(
    cfg: DictConfig,
    hydra_cfg: Any,
    overrides: Sequence[str] | None = None,
    *,
    elsewhere: bool = False,
) -> Settings:
    """Check all that can be checked without building anything.

    Args:
        cfg: The composed configuration; a comparison's description in it is left to
            `study.Study`, and a `hydra` node out of account.
        hydra_cfg: The `hydra` node, which knows what was chosen in each group.
        overrides: What the user typed, to tell a default from a wish; None for all overrides.
        elsewhere: The run is for another machine, which may have a GPU where this one has none,
            or another CPU.

    Raises:
        SettingError: The first thing that is wrong.
    """
    if overrides is None:
        overrides = typed_overrides(hydra_cfg)
    cfg = without_hydra(cfg)
    typed = _keys(overrides)
    if {"epochs", "steps"} <= typed and cfg.epochs is not None and cfg.steps is not None:
        raise SettingError("steps", expected="either epochs or steps", got="both")
    values = _resolve(cfg)
    values.pop("sweep", None)  # a comparison's description; its runs are told what they need
    for key in values:
        if key not in _KNOWN:
            raise unknown_key(key, _KNOWN)
    if values["steps"] is not None:
        values["epochs"] = None
    elif values["epochs"] is None:
        raise SettingError("epochs", expected="a number of epochs, or of steps", got="neither")

    for key in ("epochs", "steps", "batch_size", "threads"):
        if values[key] is not None:
            at_least(key, values[key], 1)
    if values["threads"] > _MOST_THREADS:
        raise SettingError("threads", expected=f"at most {_MOST_THREADS}", got=values["threads"])
    if not values["output_dir"].strip():
        raise SettingError("output_dir", expected="a folder", got="an empty string")
    for key in ("lr", "grad_clip"):
        if values[key] is not None:
            positive(key, values[key])
    if not 0 <= values["weight_decay"] < math.inf:
        raise SettingError("weight_decay", expected="at least 0", got=values["weight_decay"])
    if not 0 <= values["warmup"] <= 1:
        raise SettingError("warmup", expected="a share, 0 to 1", got=values["warmup"])
    for key in ("checkpoint_seconds", "seed"):
        at_least(key, values[key], 0)
    if not (elsewhere and values["device"] == "cuda"):
        values["device"] = found_device(values["device"])
    if values["cpu_capability"] == "auto" or not (elsewhere or values["device"] == "cuda"):
        values["cpu_capability"] = found_cpu_capability(values["cpu_capability"])
    hints = get_type_hints(Settings)
    for key in ("schedule", "dtype", "rerun", "on_error"):
        values[key] = coerce(key, values[key], hints[key])
    choices = chosen(hydra_cfg)
    follows = following_keys(cfg, choices, values)
    for group in GROUPS:
        _check_allowed(group, values[group], values["allowed_targets"], overrides)
        values[group] = check_arguments(group, values[group])
    values["logger"] = _check_loggers(values["logger"], values["allowed_targets"], overrides)
    return Settings(
        **values,
        names={group: each.named(values[group]["_target_"]) for group, each in choices.items()},
        follows=follows,
        unused=unused_keys(cfg, values, typed),
    )


def without_hydra(cfg: DictConfig) -> DictConfig:
    """A composed configuration's own part."""
    return OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])


def refuse_own_keys(overrides: Sequence[str]) -> None:
    """Refuse overrides of the folders that are mixbench's to name; Hydra would make them at once.

    Raises:
        SettingError: There is one.
    """
    for key in sorted(_keys(overrides).intersection(_OWN_KEYS)):
        raise SettingError(
            key, expected="no change", got="an override", fix="set output_dir instead"
        )


def typed_overrides(hydra_cfg: Any) -> list[str]:
    """What the user typed, from the `hydra` node; as text, without following interpolations."""
    overrides = OmegaConf.to_container(hydra_cfg.overrides, resolve=False)
    assert isinstance(overrides, dict)
    return [*overrides["task"], *overrides["hydra"]]


def mistyped(key: str, value: str) -> SettingError:
    """The error for a key of the schema that was given a value of another type."""
    hint: Any = TrainSchema
    for part in key.split("."):
        options = [option for option in get_args(hint) or (hint,) if option is not type(None)]
        hint = get_type_hints(options[0]).get(part, Any) if is_dataclass(options[0]) else Any
    options = [option for option in get_args(hint) or (hint,) if option is not type(None)]
    return SettingError(key, expected=KIND_WORDS.get(options[0], "another type"), got=value)


def several_loggers(value: str) -> SettingError:
    """The error for loggers that are typed as the choices of a grid."""
    return SettingError(
        "logger",
        expected="one logger, or several in brackets",
        got=value,
        fix="logger=[tensorboard,mlflow] writes to both",
    )


def _keys(overrides: Sequence[str]) -> set[str]:
    return set(map(override_key, overrides))


def _resolve(cfg: DictConfig) -> dict[str, Any]:
    try:
        values = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise SettingError(
            error.full_key or "configuration",
            expected="a value",
            got="nothing"
            if isinstance(error, MissingMandatoryValue)
            else (error.msg or str(error)).splitlines()[0],
        ) from error
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _check_allowed(group: str, node: Any, allowed: Sequence[str], overrides: Sequence[str]) -> None:
    """Refuse to import what neither we nor the user named: a configuration may be a stranger's."""
    path = node.get("_target_") if isinstance(node, dict) else None
    if not isinstance(path, str):
        return
    typed = {text.partition("=")[2] for text in overrides}
    trusted = ("mixbench", "torch", *plugin_packages(), *allowed)
    inside = [name for name in trusted if path.startswith(f"{name}.")]
    if not inside and path not in typed:
        module = path.rpartition(".")[0] or path
        raise SettingError(
            f"{group}._target_",
            expected="a class of mixbench, of torch, or of a module in allowed_targets",
            got=path,
            fix=f"if you trust it: allowed_targets=[{module}]",
        )


def _check_loggers(
    nodes: Mapping[str, Any], allowed: Sequence[str], overrides: Sequence[str]
) -> dict[str, Any]:
    if "_target_" in nodes:
        raise SettingError(
            "logger",
            expected="loggers by name, since there may be several",
            got=f"one without a name, {nodes['_target_']}",
            fix="begin its YAML with `# @package logger.NAME`",
        )
    for name, node in nodes.items():
        _check_allowed(f"logger.{name}", node, allowed, overrides)
    return {name: check_arguments(f"logger.{name}", node) for name, node in nodes.items()}
