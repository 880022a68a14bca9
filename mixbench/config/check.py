"""The checks that a composed configuration passes before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from mixbench.config.chosen import chosen
from mixbench.config.comparison_schema import ComparisonSchema
from mixbench.config.hardware import found_cpu_capability, found_device
from mixbench.config.settings import CHECKS, GROUPS, TYPES, Settings
from mixbench.config.shared_keys import following_keys, unused_keys
from mixbench.config.targets import KIND_WORDS, check_arguments, coerce
from mixbench.core.errors import SettingError, unknown_key
from mixbench.core.overrides import override_key
from mixbench.core.plugins import plugin_packages

# Folders are ours to name, since a record's folder is found again by the run's identity.
_OWN_KEYS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.output_subdir")


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
        if key not in TYPES:
            raise unknown_key(key, TYPES)
    if values["steps"] is not None:
        values["epochs"] = None
    elif values["epochs"] is None:
        raise SettingError("epochs", expected="a number of epochs, or of steps", got="neither")

    for key, check_value in CHECKS.items():
        if values[key] is not None:
            check_value(key, values[key])
    if not (elsewhere and values["device"] == "cuda"):
        values["device"] = found_device(values["device"])
    if values["cpu_capability"] == "auto" or not (elsewhere or values["device"] == "cuda"):
        values["cpu_capability"] = found_cpu_capability(values["cpu_capability"])
    for key, hint in TYPES.items():
        if get_origin(hint) is Literal:
            values[key] = coerce(key, values[key], hint)
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
    first, *parts = key.split(".")
    kind = _not_null(ComparisonSchema if first == "sweep" else TYPES.get(first, Any))
    for part in parts:
        kind = _not_null(get_type_hints(kind).get(part, Any)) if is_dataclass(kind) else Any
    if not isinstance(kind, type):  # one of a Literal's values
        kind = type(kind)
    return SettingError(key, expected=KIND_WORDS.get(kind, "another type"), got=value)


def _not_null(hint: Any) -> Any:
    return next(each for each in get_args(hint) or (hint,) if each is not type(None))


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
