"""Everything that one configuration names, built and ready to train."""

from __future__ import annotations

import functools
import logging
import math
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mixbench.config.settings import Settings
from mixbench.config.targets import target
from mixbench.core import seeds
from mixbench.core.errors import SettingError
from mixbench.datasets.base import Dataset
from mixbench.loggers.base import Logger
from mixbench.mixers.base import Mixer
from mixbench.models.init import init_parameters
from mixbench.models.inspect import mixer_inputs, mixers
from mixbench.models.measure import measured_flops, measured_state_size
from mixbench.models.signature import evaluate, summarise

log = logging.getLogger(__name__)


class Experiment:
    """Everything that one configuration names, built and ready to train.

    Building checks what only constructors know (a width that the heads do not divide, too many
    pairs for a row) and touches no disk.

    Args:
        settings: From `config.check`.

    Raises:
        SettingError: A constructor refuses a value; the key is named in full.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.dataset = build_dataset(settings)
        rows = self.dataset.size("train")
        if settings.batch_size > rows:
            raise SettingError(
                "batch_size",
                expected=f"at most dataset.num_train={rows}",
                got=settings.batch_size,
            )
        make_mixer = functools.partial(build_mixer, settings)
        with seeds.torch_stream(settings.seed, "init"), _oom_as_setting_error():
            self.model: nn.Module = _build(
                "model", settings.model, nn.Module, make_mixer=make_mixer
            )
        wanted, given = self.dataset.objective, getattr(self.model, "objective", None)
        if given != wanted:
            raise SettingError(
                "model",
                expected=f"one for {wanted}, which {settings.dataset['_target_']} has",
                got=f"{settings.model['_target_']}, for {given}",
            )
        self.probes = self._probes()
        init_parameters(self.model, settings.seed)
        dtype = torch.float64 if settings.dtype == "float64" else torch.float32
        self.model.to(device=settings.device, dtype=dtype)
        self.optimizer: torch.optim.Optimizer = _build(
            "optimizer",
            settings.optimizer,
            torch.optim.Optimizer,
            params=self.model.parameters(),
        )
        per_epoch = math.ceil(rows / settings.batch_size)
        self.steps = settings.steps or per_epoch * (settings.epochs or 0)
        self.loggers = {name: _build_logger(name, node) for name, node in settings.logger.items()}

    def _probes(self) -> dict[str, Dataset]:
        """The further test sets, built; nothing of them is made yet."""
        try:
            return dict(self.dataset.probes())
        except SettingError as error:
            raise error.within("dataset") from error

    def describe(self) -> dict[str, Any]:
        """What is known without running anything: the metric and the number of parameters."""
        return {
            "metric": self.dataset.metric,
            "higher_is_better": self.dataset.higher_is_better,
            "margin": self.dataset.margin,
            "ceiling": self.dataset.ceiling,
            "parameters": {
                "total": sum(p.numel() for p in self.model.parameters()),
                "mixer": sum(p.numel() for m in mixers(self.model) for p in m.parameters()),
            },
        }

    def costs(self) -> dict[str, Any]:
        """State and operations by formula, and counted FLOPs, all layers together."""
        seq_len = self.dataset.seq_len
        layers = mixers(self.model)
        with seeds.torch_stream(0, "accounting"):
            x = torch.randn(1, seq_len, layers[0].d_model if layers else 1)
        x = x.to(next(self.model.parameters()))
        pair = layers[0].pair_operations() if layers else None
        operations = [mixer.operations(seq_len) for mixer in layers]
        known = [each for each in operations if each is not None]
        total = sum(known[1:], known[0]).as_dict() if known and len(known) == len(layers) else None
        flops = sum(measured_flops(mixer, x) for mixer in layers)
        return {
            "state_size": _sum_or_none(mixer.state_size(seq_len) for mixer in layers),
            "state_size_is_bound": any(mixer.state_size_is_bound for mixer in layers),
            "conv_state_size": sum(mixer.conv_state_size() for mixer in layers),
            "operations": {
                "per_token": total,
                "per_pair": None if pair is None else pair.as_dict(),
                "measured_flops_per_token": flops / seq_len,
            },
        }

    def examine(self, inputs: Tensor) -> dict[str, Any]:
        """What the trained mixers do on some inputs: signatures, and what streaming holds.

        A claim that cannot be evaluated does not hold; its exception is what was observed.
        """
        self.model.eval()
        seen = mixer_inputs(self.model, inputs)
        signature = summarise(evaluate(mixer, seen.get(mixer)) for mixer in mixers(self.model))
        try:
            held = _sum_or_none(
                measured_state_size(mixer, seen[mixer][:1]) if mixer in seen else None
                for mixer in mixers(self.model)
            )
        except Exception:  # a faulty step() must not cost the trained run its result
            log.warning("the streaming form cannot be run:\n%s", traceback.format_exc())
            held = None
        return {"signature": signature, "measured_state_size": held}


def _sum_or_none(numbers: Iterable[int | None]) -> int | None:
    """The sum, or None where one is not known."""
    known = list(numbers)
    return None if None in known else sum(number or 0 for number in known)


def build_dataset(settings: Settings) -> Dataset:
    """The dataset that settings name, without anything made yet.

    Raises:
        SettingError: Its constructor refuses a value.
    """
    return _build("dataset", settings.dataset, Dataset)  # type: ignore[type-abstract]


def build_mixer(settings: Settings) -> Mixer:
    """One mixer as settings name it, with the values that its constructor gives it.

    Raises:
        SettingError: Its constructor refuses a value.
    """
    return _build("mixer", settings.mixer, Mixer)


Built = TypeVar("Built")


def _build(section: str, node: Mapping[str, Any], kind: type[Built], **supplied: Any) -> Built:
    cls = target(section, node)
    if not issubclass(cls, kind):
        raise SettingError(
            f"{section}._target_",
            expected=f"a subclass of {kind.__module__}.{kind.__qualname__}",
            got=node["_target_"],
        )
    arguments = {key: value for key, value in node.items() if key != "_target_"}
    try:
        return cls(**arguments, **supplied)
    except SettingError as error:
        raise error.within(section) from error
    except (TypeError, ValueError) as error:
        if kind is not torch.optim.Optimizer:
            raise
        # PyTorch's optimizers check their own arguments.
        raise SettingError(
            section, expected=f"arguments that {node['_target_']} accepts", got=str(error)
        ) from error


@contextmanager
def _oom_as_setting_error() -> Iterator[None]:
    """Tell a model that is too large from a programming error."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise
        got = (str(error).strip().splitlines() or ["one that does not"])[0]
        raise SettingError("model", expected="a size that fits into memory", got=got) from error


def _build_logger(name: str, node: Mapping[str, Any]) -> Logger:
    section = f"logger.{name}"
    try:
        logger = _build(section, node, Logger)
    except SettingError:
        raise
    except Exception as error:  # whatever a user's constructor does; nothing has been run yet
        got = f"{type(error).__name__}: {error}"
        expected = f"arguments that {node['_target_']} accepts"
        raise SettingError(section, expected=expected, got=got) from error
    logger.require_package()
    return logger
