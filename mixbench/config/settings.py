"""The configuration: each top-level key once, with its type, its check and whether it is identity.

A composed configuration becomes `Settings` or a `SettingError` that names the key. Keys of a group
are the constructor arguments of its `_target_`: unknown ones, missing ones and wrong types are
errors here; wrong values are errors in the constructor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, fields, make_dataclass
from functools import partial
from typing import Any, Literal, get_origin, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from mixbench.config.comparison_schema import ComparisonSchema
from mixbench.core.errors import SettingError, at_least, positive

GROUPS = ("dataset", "model", "mixer", "optimizer")


# Top-level keys that act only through the groups whose YAML refers to them.
SHARED_KEYS = ("causal", "conv_width", "out_gate", "lr", "weight_decay")


_MOST_THREADS = 1024

Check = Callable[[str, Any], None]


# A key names the result rather than influencing it, and is no part of its identity.
_NO_INFLUENCE = {"in_hash": False}
# A key that is derived from what the user sets.
_DERIVED = {"in_hash": False, "composed": False}


def _checked(check: Check) -> dict[str, Any]:
    """A key whose values of the right type can be wrong all the same; null is not shown."""
    return {"check": check}


def _minimum(bound: float) -> Check:
    return partial(at_least, bound=bound)


def _threads(key: str, value: int) -> None:
    at_least(key, value, 1)
    if value > _MOST_THREADS:
        raise SettingError(key, expected=f"at most {_MOST_THREADS}", got=value)


def _not_negative(key: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise SettingError(key, expected="at least 0", got=value)


def _share(key: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise SettingError(key, expected="a share, 0 to 1", got=value)


def _folder(key: str, value: str) -> None:
    if not value.strip():
        raise SettingError(key, expected="a folder", got="an empty string")


@dataclass(frozen=True)
class Settings:
    """A checked configuration: plain values, nothing left to interpolate.

    The groups are dictionaries of a `_target_` and its arguments, `logger` one of such by name;
    `conf/train.yaml` holds the other keys' values and says what they are.
    Exactly one of `epochs` and `steps` is set.

    Attributes:
        names: What the groups' choices are called, by group.
        follows: Keys that show another key's value, `optimizer.lr` that of `lr`.
        unused: Keys that nothing in this configuration uses.
    """

    dataset: dict[str, Any]
    model: dict[str, Any]
    mixer: dict[str, Any]
    optimizer: dict[str, Any]
    causal: bool
    conv_width: int
    out_gate: bool
    seed: int = field(metadata=_checked(_minimum(0)))
    lr: float = field(metadata=_checked(positive))
    weight_decay: float = field(metadata=_checked(_not_negative))
    epochs: int | None = field(metadata=_checked(_minimum(1)))
    steps: int | None = field(metadata=_checked(_minimum(1)))
    batch_size: int = field(metadata=_checked(_minimum(1)))
    schedule: Literal["one_cycle", "constant"]
    warmup: float = field(metadata=_checked(_share))
    grad_clip: float | None = field(metadata=_checked(positive))
    compile: bool
    test: bool
    device: Literal["cpu", "cuda"]
    cpu_capability: str
    threads: int = field(metadata=_checked(_threads))
    dtype: Literal["float32", "float64", "bfloat16"]
    output_dir: str = field(metadata=_checked(_folder) | _NO_INFLUENCE)
    rerun: Literal["none", "failed", "all"] = field(metadata=_NO_INFLUENCE)
    on_error: Literal["continue", "stop"] = field(metadata=_NO_INFLUENCE)
    checkpoint_seconds: float = field(metadata=_checked(_minimum(0)) | _NO_INFLUENCE)
    keep_checkpoint: bool = field(metadata=_NO_INFLUENCE)
    allowed_targets: list[str] = field(metadata=_NO_INFLUENCE)
    logger: dict[str, dict[str, Any]] = field(metadata=_NO_INFLUENCE)
    names: dict[str, str] = field(metadata=_DERIVED)
    follows: tuple[str, ...] = field(metadata=_DERIVED)
    unused: tuple[str, ...] = field(metadata=_DERIVED)

    def result_settings(self) -> dict[str, Any]:
        """The part that decides the run's result, for its identity."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in (*NOT_IN_HASH, *self.unused)
        }

    def recorded_settings(self) -> dict[str, Any]:
        """The part that decides the run's result, each value once, for its record."""
        settings = deepcopy(self.result_settings())
        for key in self.follows:
            *parents, last = key.split(".")
            node = settings
            for parent in parents:
                node = node[parent]
            del node[last]
        return settings


TYPES: dict[str, Any] = {
    name: hint
    for name, hint in get_type_hints(Settings).items()
    if Settings.__dataclass_fields__[name].metadata.get("composed", True)
}
CHECKS: dict[str, Check] = {
    each.name: each.metadata["check"] for each in fields(Settings) if each.metadata.get("check")
}
NOT_IN_HASH = tuple(
    each.name for each in fields(Settings) if not each.metadata.get("in_hash", True)
)


def _schema() -> type[Any]:
    """What Hydra checks while the user's overrides are merged: the keys and their types.

    OmegaConf has no `Literal`, and a group's choice brings its own keys.
    """
    types = dict(TYPES)
    types |= dict.fromkeys(GROUPS, Any)
    types |= {name: str for name, hint in TYPES.items() if get_origin(hint) is Literal}
    return make_dataclass(
        "TrainSchema",
        [
            *((name, hint, MISSING) for name, hint in types.items() if name != "logger"),
            ("logger", dict[str, Any], field(default_factory=dict)),
            ("sweep", ComparisonSchema | None, None),
        ],
    )


ConfigStore.instance().store("train_schema", _schema())
