"""The configuration: its schema, and the checks that it passes before anything is written.

A composed configuration becomes `Settings` or a `SettingError` that names the key. Keys of a group
are the constructor arguments of its `_target_`: unknown ones, missing ones and wrong types are
errors here; wrong values are errors in the constructor.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hydra._internal.utils import _locate
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from mixbench.errors import SettingError, at_least, nearest, positive, unknown_key
from mixbench.overrides import is_number, override_key
from mixbench.plugins import plugin_packages, reach_working_folder
from mixbench.study import ComparisonSchema

GROUPS = ("dataset", "model", "mixer", "optimizer")
# Folders are ours to name, since a record's folder is found again by the run's identity.
_OWN_KEYS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.output_subdir")


_MOST_THREADS = 1024
# Named, not imported: PyTorch comes with the user's choice of a class, not before.
_BASES = {
    "mixer": "mixbench.mixers.mixer.Mixer",
    "dataset": "mixbench.datasets.dataset.Dataset",
}
_KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
}


@dataclass
class TrainSchema:
    """Types of the top-level keys; `conf/train.yaml` holds the values and says what they are."""

    dataset: Any = MISSING
    model: Any = MISSING
    mixer: Any = MISSING
    optimizer: Any = MISSING
    causal: bool = MISSING
    conv_width: int = MISSING
    out_gate: bool = MISSING
    seed: int = MISSING
    lr: float = MISSING
    weight_decay: float = MISSING
    epochs: int | None = MISSING
    steps: int | None = MISSING
    batch_size: int = MISSING
    schedule: str = MISSING
    warmup: float = MISSING
    grad_clip: float | None = MISSING
    compile: bool = MISSING
    test: bool = MISSING
    device: str = MISSING
    threads: int = MISSING
    dtype: str = MISSING
    output_dir: str = MISSING
    rerun: str = MISSING
    on_error: str = MISSING
    checkpoint_seconds: float = MISSING
    keep_checkpoint: bool = MISSING
    allowed_targets: list[str] = MISSING
    logger: dict[str, Any] = field(default_factory=dict)
    sweep: ComparisonSchema | None = None


ConfigStore.instance().store("train_schema", TrainSchema)

# What names a result rather than influencing it.
NOT_IDENTITY = (
    "output_dir", "rerun", "on_error", "checkpoint_seconds", "keep_checkpoint", "allowed_targets",
    "logger",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """A checked configuration: plain values, nothing left to interpolate.

    The groups are dictionaries of a `_target_` and its arguments, `logger` one of such by name, the
    rest as in `TrainSchema`.
    Exactly one of `epochs` and `steps` is set.
    """

    dataset: dict[str, Any]
    model: dict[str, Any]
    mixer: dict[str, Any]
    optimizer: dict[str, Any]
    causal: bool
    conv_width: int
    out_gate: bool
    seed: int
    lr: float
    weight_decay: float
    epochs: int | None
    steps: int | None
    batch_size: int
    schedule: Literal["one_cycle", "constant"]
    warmup: float
    grad_clip: float | None
    compile: bool
    test: bool
    device: Literal["cpu", "cuda"]
    threads: int
    dtype: Literal["float32", "float64", "bfloat16"]
    output_dir: str
    rerun: Literal["none", "failed", "all"]
    on_error: Literal["continue", "stop"]
    checkpoint_seconds: float
    keep_checkpoint: bool
    allowed_targets: list[str]
    logger: dict[str, dict[str, Any]]

    def identifying(self) -> dict[str, Any]:
        """The part that decides the run's result, for its identity and its record."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in NOT_IDENTITY
        }


def check(cfg: DictConfig, overrides: Sequence[str] = (), *, elsewhere: bool = False) -> Settings:
    """Check all that can be checked without building anything.

    Args:
        cfg: The composed configuration, without the `hydra` node; a comparison's description in
            it is left to `study.Study`.
        overrides: What the user typed (`typed_overrides`), to tell a default from a wish.
        elsewhere: The run is for another machine, which may have a GPU where this one has none.

    Raises:
        SettingError: The first thing that is wrong.
    """
    typed = _keys(overrides)
    if {"epochs", "steps"} <= typed and cfg.epochs is not None and cfg.steps is not None:
        raise SettingError("steps", expected="either epochs or steps", got="both")
    values = _resolve(cfg)
    values.pop("sweep", None)  # a comparison's description; its runs are told what they need
    known = [field.name for field in fields(Settings)]
    for key in values:
        if key not in known:
            raise unknown_key(key, known)
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
    hints = get_type_hints(Settings)
    for key in ("schedule", "dtype", "rerun", "on_error"):
        values[key] = coerce(key, values[key], hints[key])
    for group in GROUPS:
        _check_allowed(group, values[group], values["allowed_targets"], overrides)
        values[group] = check_arguments(group, values[group])
    values["logger"] = _check_loggers(values["logger"], values["allowed_targets"], overrides)
    return Settings(**values)


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
        found = _locate(path)  # Hydra's get_object, without the lines that it prints
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
        if len(options) == 1 or (isinstance(value, str) and not words and options[0] in _KINDS):
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
    if hint in _KINDS and type(value) is not hint:
        raise SettingError(key, expected=_KINDS[hint], got="null" if value is None else value)
    return value


def mistyped(key: str, value: str) -> SettingError:
    """The error for a key of the schema that was given a value of another type."""
    hint: Any = TrainSchema
    for part in key.split("."):
        options = [option for option in get_args(hint) or (hint,) if option is not type(None)]
        hint = get_type_hints(options[0]).get(part, Any) if is_dataclass(options[0]) else Any
    options = [option for option in get_args(hint) or (hint,) if option is not type(None)]
    return SettingError(key, expected=_KINDS.get(options[0], "another type"), got=value)


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


def found_device(name: str) -> str:
    """The device that a setting stands for on this machine.

    Raises:
        SettingError: It is none, or not here.
    """
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise SettingError("device", expected="auto, cpu or cuda", got=name)
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise SettingError(
            "device",
            expected="auto or cpu: PyTorch sees no CUDA device on this machine",
            got=name,
        )
    return "cuda" if name != "cpu" and has_cuda else "cpu"


# Arguments that code passes to a group's class beside the configuration's keys.
_SUPPLIED = {"model": {"make_mixer"}, "optimizer": {"params"}}


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


def check_arguments(group: str, node: Any) -> dict[str, Any]:
    """A group's configuration, its keys those of its class's constructor, its values of the types.

    Raises:
        SettingError: They are not.
    """
    if not isinstance(node, dict):
        raise SettingError(group, expected="a configuration with a _target_", got=node)
    cls = target(group, node)
    base = _BASES.get(group)
    if base is not None and not issubclass(cls, _locate(base)):
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
