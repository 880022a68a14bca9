"""What a run's `result.json` holds, and its one reader, which refuses what we would not write.

Never imports torch.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Status = Literal["completed", "diverged", "failed"]
COMPLETED: Status = "completed"
DIVERGED: Status = "diverged"
FAILED: Status = "failed"

Metrics = dict[str, float]

# Splits in the keys of `Result.metrics`, `valid/accuracy`.
_VALID, _TEST = "valid", "test"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was computed on; `gpu` where PyTorch saw one."""

    system: str
    cpus: int | None
    cpu: str | None = None
    cpu_capability: str | None = None
    gpu: str | None = None


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that are learned: all of the model's, and its mixers'."""

    total: int
    mixer: int


class OperationCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Scalar operations by kind, all layers together; None where a mixer does not say."""

    per_token: dict[str, float] | None
    per_pair: dict[str, float] | None
    measured_flops_per_token: float | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A claim of one layer's mixer and what was observed, see `mixers.claims.Claim`."""

    layer: int
    name: str
    predicted: Any
    observed: Any
    tolerance: float | None = None
    holds: bool


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of all layers; one holds if it holds in every layer."""

    holds: bool
    held: int
    of: int
    failing: list[str]
    checks: list[Check]


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The best score that is possible by the size of the state, rising in both."""

    state_size: list[float] = []
    score: list[float] = []

    def __post_init__(self) -> None:
        if len(self.state_size) != len(self.score):
            raise ValueError("expected as many scores as sizes of the state")


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """What only the task can say of the run, see `datasets.base.Analysis`."""

    title: str
    values: dict[str, float]
    note: str = ""
    bound: Bound = Bound()
    bound_note: str = ""


class Seconds(msgspec.Struct, frozen=True, kw_only=True):
    """Wall time: of the whole run, of training alone, of making the data."""

    total: float
    train: float | None = None
    data: float | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run's result.

    Attributes:
        reason: Why it did not complete.
        code_version: Of the code that the arms of a comparison have in common.
        files_read: Files that the data came from, each with its hash.
        names: What its dataset, model, mixer and optimizer are called.
        config: The settings that decide the result, each value once.
        environment: The variables that steer numerical libraries.
        metric: The metric that comparisons use.
        metrics: By `split/name`; the test split's only if the run read it.
        trivial_baseline: What a forecast without learning scores on the last split.
        diagnostics: What the mixers told about themselves in the last epoch.
        probes: Metrics of further test sets by their names; None for one that could not be run.
        state_size: Numbers held a sequence, by formula, all layers together.
        state_size_is_bound: Whether that is the most, what is held depending on the tokens.
        measured_state_size: Numbers that the streaming form held.
        overlap: Rows that two splits share, by `later_in_earlier`.
    """

    status: Status
    reason: str | None = None
    identity: str | None = None
    code_version: str
    files_read: dict[str, str] = {}
    started: str
    seed: int
    device: str
    threads: int
    dtype: str | None = None
    machine: Machine
    versions: dict[str, str]
    environment: dict[str, str] = {}
    names: dict[str, str]
    config: dict[str, Any]
    metric: str
    higher_is_better: bool
    margin: float
    ceiling: float | None = None
    parameters: Parameters
    metrics: Metrics = {}
    trivial_baseline: Metrics = {}
    diagnostics: dict[str, float] = {}
    probes: dict[str, Metrics | None] = {}
    analysis: Analysis | None = None
    signature: Signature | None = None
    state_size: int | None = None
    state_size_is_bound: bool = False
    conv_state_size: int | None = None
    measured_state_size: int | None = None
    operations: OperationCounts | None = None
    epochs: int | None = None
    steps: int | None = None
    compiled: bool | None = None
    history_sha256: str | None = None
    overlap: dict[str, int] = {}
    seconds: Seconds
    tokens_per_second: float | None = None

    def __post_init__(self) -> None:
        for group in ("dataset", "mixer"):
            node = self.config.get(group)
            if not isinstance(node, dict) or not isinstance(node.get("_target_"), str):
                raise ValueError(f"expected a configuration of the {group} with a _target_")
            if group not in self.names:
                raise ValueError(f"expected the name of the {group}")
        if self.status == COMPLETED:
            if self.operations is None:
                raise ValueError("expected the operations of a completed run")
            for split in (_VALID, _TEST) if self.reads_test else (_VALID,):
                if self.score(split) is None:
                    raise ValueError(f"expected {split}/{self.metric} of a completed run")

    @property
    def reads_test(self) -> bool:
        """Whether such a run reads the test split, as all did before there was a choice."""
        return bool(self.config.get("test", True))

    def score(self, split: str) -> float | None:
        """The metric that comparisons use, on a split; None where there is none."""
        return self.metrics.get(f"{split}/{self.metric}")

    @property
    def state_held(self) -> int | None:
        """Numbers of state a sequence: as measured, else by formula."""
        return self.state_size if self.measured_state_size is None else self.measured_state_size


def as_result(content: Any) -> Result:
    """What was read, or what a run has come to, as a result.

    Raises:
        ValueError: It is none: a part is missing, or of another type.
    """
    plain = msgspec.to_builtins(content, enc_hook=_plain)
    return msgspec.convert(plain, Result)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, which metrics and claims may hold, as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"expected plain data, got {type(value).__name__}")
