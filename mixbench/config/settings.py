"""The configuration: its schema, and the checks that it passes before anything is written.

A composed configuration becomes `Settings` or a `SettingError` that names the key. Keys of a group
are the constructor arguments of its `_target_`: unknown ones, missing ones and wrong types are
errors here; wrong values are errors in the constructor.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from mixbench.config.comparison_schema import ComparisonSchema

GROUPS = ("dataset", "model", "mixer", "optimizer")


# Top-level keys that act only through the groups whose YAML refers to them.
SHARED_KEYS = ("causal", "conv_width", "out_gate", "lr", "weight_decay")


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
    cpu_capability: str = MISSING
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
NOT_IN_HASH = (
    "output_dir", "rerun", "on_error", "checkpoint_seconds", "keep_checkpoint", "allowed_targets",
    "logger", "names", "follows", "unused",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """A checked configuration: plain values, nothing left to interpolate.

    The groups are dictionaries of a `_target_` and its arguments, `logger` one of such by name, the
    rest as in `TrainSchema`.
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
    cpu_capability: str
    threads: int
    dtype: Literal["float32", "float64", "bfloat16"]
    output_dir: str
    rerun: Literal["none", "failed", "all"]
    on_error: Literal["continue", "stop"]
    checkpoint_seconds: float
    keep_checkpoint: bool
    allowed_targets: list[str]
    logger: dict[str, dict[str, Any]]
    names: dict[str, str]
    follows: tuple[str, ...]
    unused: tuple[str, ...]

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
