"""What a logger is told about a run. Never imports torch, nor the loggers' own packages."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from mixbench.core.errors import SettingError
from mixbench.core.overrides import flat, is_number

if TYPE_CHECKING:
    from mixbench.config.settings import Settings
    from mixbench.records.folder import RunFolder
    from mixbench.records.result import Result


# Parts of a result that stand in the configuration and the labels, or are of no use elsewhere.
_EXCLUDED_FIELDS = (
    "config", "identity", "seed", "device", "threads", "dtype", "machine", "metrics",
    "history_sha256",
)  # fmt: skip


@dataclass(frozen=True)
class LoggedRun:
    """One run, as a logger meets it.

    Attributes:
        settings: All settings; `config` gives them as one flat dictionary.
        folder: The record's folder; its name names the run.
        place: Where it belongs, as far as that is known: `sweep` (the sweep's folder), `study`
            (the comparison's name), `task`, `arm`, `stage` (selection, evaluation, ablation),
            `trial`, `ablation`.
    """

    settings: Settings
    folder: RunFolder
    place: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def identity(self) -> str:
        return self.folder.identity

    @property
    def group(self) -> str | None:
        """What it is compared within: a comparison's name, or a grid's folder."""
        return self.place.get("study", self.place.get("sweep"))

    def config(self) -> dict[str, Any]:
        """The resolved configuration, `{"mixer.num_heads": 2, ...}`, without the loggers' own."""
        settings = {
            field.name: getattr(self.settings, field.name)
            for field in fields(self.settings)
            if field.name != "logger"
        }
        return _stated(flat(settings))

    def labels(self) -> dict[str, Any]:
        """What it is found by: `identity`, `record`, `seed`, and its place."""
        found = {"identity": self.identity, "record": str(self.folder.path)}
        return {**found, "seed": self.settings.seed, **self.place}


class Unfinished:
    """The name of a log that is not finished, in the record's folder: what goes on finds it there.

    Args:
        run: The run.
        kind: Whose log it is.
    """

    def __init__(self, run: LoggedRun, kind: str) -> None:
        self._path = run.folder.path / f".{kind}"

    def read(self) -> str | None:
        """The log's name, letters and digits; None if there is none, or something else there."""
        try:
            name = self._path.read_text()
        except (OSError, ValueError):
            return None
        return name if name.isalnum() and name.isascii() else None

    def write(self, name: str) -> None:
        self._path.write_text(name)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


class Logger:
    """Writes one run elsewhere, beside its record, which never depends on it.

    A constructor's arguments are the YAML's keys; it imports and writes nothing. Then one instance
    is told of one run: `started`, `epoch` for every line of the history, and `finished` or
    `interrupted`. Whatever a method raises switches the logger off for the rest of the run and
    does no more harm. A run that goes on in another process is told from its first epoch on, but
    for the steps that `started` says are there.

    Attributes:
        package: The package that it needs, under the name that is imported; None for none.
        extra: The extra of mixbench that brings it.
    """

    package: ClassVar[str | None] = None
    extra: ClassVar[str | None] = None

    def started(self, run: LoggedRun) -> int:
        """Begin a log, or go on with the one that the same run left when it was interrupted.

        Returns:
            The last step that this log holds, 0 for none; lines up to it are not told again.
        """
        raise NotImplementedError

    def epoch(self, row: Mapping[str, float]) -> None:
        """A line of the history: `epoch`, `step`, `train/loss`, `valid/...`, `lr`, `seconds`."""
        raise NotImplementedError

    def finished(self, result: Result) -> None:
        """The run's result is on disk, whatever its status; the last that the logger hears."""
        raise NotImplementedError

    def interrupted(self) -> None:
        """The run stops without a result and may go on later; the last that the logger hears."""

    @classmethod
    def require_package(cls) -> None:
        """See that the package is there, without importing it.

        Raises:
            SettingError: It is not installed.
        """
        if cls.package is None:
            return
        spec = importlib.util.find_spec(cls.package)
        # A folder of that name, as `wandb` makes one, would do for a package without an origin.
        if spec is None or spec.origin is None:
            source = cls.package if cls.extra is None else f"'mixbench[{cls.extra}]'"
            raise SettingError(
                "logger",
                expected=f"the package {cls.package} to be installed",
                got="no such package",
                fix=f"pip install {source}",
            )


def numbers(row: Mapping[str, float]) -> dict[str, float]:
    """What a line of the history says, without what counts it."""
    return {name: value for name, value in row.items() if name not in ("epoch", "step")}


def final_numbers(result: Result) -> dict[str, float]:
    """A result's numbers: metrics as `final/valid/accuracy`, others as `parameters/total`."""
    metrics = {f"final/{name}": value for name, value in result.metrics.items()}
    return {**metrics, **{k: v for k, v in _scalars(result).items() if is_number(v)}}


def final_words(result: Result) -> dict[str, str]:
    """What a result says in words: `status`, `reason`, `metric`, `signature/failing`, ..."""
    return {
        name: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in _scalars(result).items()
        if not is_number(value)
    }


def _scalars(result: Result) -> dict[str, Any]:
    plain = msgspec.to_builtins(result)
    told = {key: value for key, value in plain.items() if key not in _EXCLUDED_FIELDS}
    if result.signature is not None:
        told["signature"] = {k: v for k, v in told["signature"].items() if k != "checks"}
    if result.analysis is not None:
        told["analysis"] = result.analysis.values
    return _stated(flat(told, "/"))


def _stated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None."""
    return {name: value for name, value in values.items() if value is not None}
