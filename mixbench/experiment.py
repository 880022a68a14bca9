"""One run, from checked settings to its record."""

from __future__ import annotations

import functools
import io
import itertools
import logging
import math
import os
import platform
import time
import traceback
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from mixbench import __version__, seeds
from mixbench.accounting import counted_flops, streamed_state
from mixbench.config import Settings, target
from mixbench.datasets.dataset import SPLITS, Dataset, Split, overlap
from mixbench.datasets.generated import generated
from mixbench.errors import CannotWrite, Elsewhere, RunsFailed, SettingError
from mixbench.interruption import Interrupted, Watch, stopped_in_order
from mixbench.loggers.logger import Logger
from mixbench.loggers.telling import Telling, telling
from mixbench.memory import keep_freed_memory
from mixbench.mixers.mixer import Mixer
from mixbench.models import mixer_inputs, mixers
from mixbench.records import (
    COMPLETED,
    DIVERGED,
    FAILED,
    RunFolder,
    code_version,
    folder_of,
    make_folder,
    redone,
    write_bytes,
    write_history,
    write_json,
)
from mixbench.signatures import evaluate, summarise
from mixbench.training import Callback, Diverged, Epoch, Step, Trainer

log = logging.getLogger(__name__)

# Rows of the last split on which the trained mixers' signatures are evaluated.
_EXAMINED_ROWS = 32


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
        with seeds.torch_stream(settings.seed, "init"), _fitting_memory():
            self.model: nn.Module = _build(
                "model", settings.model, nn.Module, make_mixer=make_mixer
            )
        kind = getattr(self.model, "kind", None)
        if kind != self.dataset.kind:
            raise SettingError(
                "model",
                expected=f"one for {self.dataset.kind}, which {settings.dataset['_target_']} has",
                got=f"{settings.model['_target_']}, for {kind}",
            )
        seeds.init_parameters(self.model, settings.seed)
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
        flops = sum(counted_flops(mixer, x) for mixer in layers)
        return {
            "state_size": _sum_known(mixer.state_size(seq_len) for mixer in layers),
            "conv_state_size": sum(mixer.conv_state_size() for mixer in layers),
            "operations": {
                "per_token": total,
                "per_pair": None if pair is None else pair.as_dict(),
                "counted_flops_per_token": flops / seq_len,
            },
        }

    def examine(self, inputs: Tensor) -> dict[str, Any]:
        """What the trained mixers do on some inputs: signatures, and what streaming holds.

        A claim that cannot be evaluated does not hold; its exception is what was observed.
        """
        self.model.eval()
        layers = list(zip(mixers(self.model), mixer_inputs(self.model, inputs), strict=True))
        signature = summarise(evaluate(mixer, x) for mixer, x in layers)
        try:
            held = _sum_known(streamed_state(mixer, x[:1]) for mixer, x in layers)
        except Exception:  # a faulty step() must not cost the trained run its result
            log.warning("the streaming form cannot be run:\n%s", traceback.format_exc())
            held = None
        return {"signature": signature, "state_held": held}


def _sum_known(numbers: Iterable[int | None]) -> int | None:
    """The sum, or None where one is not known."""
    known = list(numbers)
    return None if None in known else sum(number or 0 for number in known)


@dataclass(frozen=True)
class Outcome:
    """A run's result and where its record lies; `reused` if the record was there before."""

    result: Mapping[str, Any]
    folder: RunFolder
    reused: bool


def run(
    settings: Settings,
    callbacks: list[Callback],
    hydra_files: Mapping[str, str] | None = None,
    *,
    wait: bool = True,
    sweep: Path | None = None,
) -> Outcome:
    """Train, evaluate and leave a record; or return the record that there is.

    A run that was interrupted goes on from its last checkpoint, bit for bit. Files that cannot be
    trusted (cut short, overwritten) are named, set aside and made anew.

    Args:
        settings: From `config.check`.
        callbacks: Progress displays.
        hydra_files: What to put into the record's `.hydra` folder, text by file name.
        wait: Where another process is at this run, wait for its record.
        sweep: The folder of the sweep that the run belongs to, if to any.

    Returns:
        The outcome; a new one's `status` is `completed` or `diverged`.

    Raises:
        SettingError: A wrong setting; nothing is written.
        Elsewhere: Another process is at this run, and `wait` is false.
        Interrupted: It was told to stop; its checkpoint is on disk.
        CannotWrite: The disk is full, or read-only.
        Exception: What training raised, after a `failed` record was written.
    """
    experiment = Experiment(settings)
    folder = folder_of(settings)
    watch = Watch(sweep)
    watch.check()
    folder.create()
    with _locked(folder, wait), _logging_to(folder.log), stopped_in_order():
        folder.remove_leftovers()
        earlier, problems = folder.examined()
        for path, reason in problems:
            _set_aside(folder, path, reason)
        redo = redone(earlier, settings.rerun)
        if earlier is not None and not redo:
            return Outcome(earlier, folder, reused=True)
        if redo:
            for path in (folder.result, folder.checkpoint, folder.history):
                path.unlink(missing_ok=True)
        for name, text in (hydra_files or {}).items():
            make_folder(folder.path / ".hydra")
            write_bytes(folder.path / ".hydra" / name, text.encode())
        recorder = _Recorder(folder, settings.checkpoint_seconds, watch)
        with telling(experiment.loggers, settings, folder, sweep) as teller:
            try:
                result = _run(experiment, folder, recorder, callbacks, teller)
            except _Unusable as error:
                _set_aside(folder, folder.checkpoint, str(error))
                recorder = _Recorder(folder, settings.checkpoint_seconds, watch)
                result = _run(Experiment(settings), folder, recorder, callbacks, teller)
        if not settings.keep_checkpoint:
            folder.checkpoint.unlink(missing_ok=True)
        return Outcome(result, folder, reused=False)


def _set_aside(folder: RunFolder, path: Path, reason: str) -> None:
    aside = folder.set_aside(path)
    if aside is not None:
        log.warning("%s is set aside as %s: %s", path, aside.name, reason)
        print(f"set aside, to be made anew: {path} ({reason})", flush=True)


def _run(
    experiment: Experiment,
    folder: RunFolder,
    recorder: _Recorder,
    callbacks: list[Callback],
    teller: Telling,
) -> dict[str, Any]:
    settings = experiment.settings
    torch.set_num_threads(settings.threads)
    keep_freed_memory()
    started = datetime.now(timezone.utc)
    result: dict[str, Any] = {
        "status": FAILED,
        "reason": None,
        "identity": folder.identity,
        "code_version": code_version(settings),
        "started": started.isoformat(timespec="seconds"),
        "seed": settings.seed,
        "device": settings.device,
        "threads": settings.threads,
        "dtype": settings.dtype,
        "machine": {"system": platform.platform(), "cpus": os.cpu_count()},
        "versions": {
            "mixbench": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy", "numba", "hydra-core")},
        },
        "config": settings.identifying(),
        **experiment.describe(),
        "metrics": {},
    }
    clock = time.perf_counter()
    try:
        result |= experiment.costs()
        result |= _train(experiment, recorder, [*callbacks, teller])
    except (_Unusable, CannotWrite, RunsFailed):
        raise
    except Diverged as error:
        log.warning("diverged at %s", error)
        result |= {"status": DIVERGED, "reason": str(error)}
    except Exception as error:
        log.error("failed:\n%s", traceback.format_exc())
        result["reason"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        # An interruption leaves no result, so that the same command goes on from the checkpoint.
        if result["status"] != FAILED or result["reason"] is not None:
            total = time.perf_counter() - clock - teller.seconds
            result["seconds"] = {"total": total, **result.get("seconds", {})}
            write_json(folder.result, result)
            log.info("%s, record in %s", result["status"], folder.path)
    return result


def _train(
    experiment: Experiment, recorder: _Recorder, callbacks: list[Callback]
) -> dict[str, Any]:
    settings, dataset = experiment.settings, experiment.dataset
    clock = time.perf_counter()
    # A run that only chooses a configuration does not even make the test split.
    splits = [split for split in SPLITS if settings.test or split != "test"]
    rows = {split: generated(settings.dataset, dataset, split, settings.seed) for split in splits}
    data_seconds = time.perf_counter() - clock
    overlaps = {
        f"{later}_in_{earlier}": overlap(rows[later], rows[earlier])
        for earlier, later in itertools.combinations(splits, 2)
    }
    if any(overlaps.values()):
        log.warning("the splits share rows: %s", overlaps)
    trainer = Trainer(
        model=experiment.model,
        dataset=dataset,
        rows=rows,
        optimizer=experiment.optimizer,
        seed=settings.seed,
        steps=experiment.steps,
        batch_size=settings.batch_size,
        schedule=settings.schedule,
        warmup=settings.warmup,
        grad_clip=settings.grad_clip,
        dtype=settings.dtype,
        device=torch.device(settings.device),
        compile=settings.compile,
    )
    recorder.resume(trainer)
    trainer.train([recorder, *callbacks])
    valid = {name: value for name, value in recorder.history[-1].items() if "/" in name}
    last: Split = "test" if settings.test else "valid"
    test = trainer.evaluate("test") if settings.test else {}
    inputs, _ = trainer.tensors(last)
    return {
        "status": COMPLETED,
        "metrics": {**valid, **test},
        "chance": dataset.chance(rows[last]),
        "n_cells": trainer.n_cells,
        **experiment.examine(inputs[:_EXAMINED_ROWS]),
        "epochs": trainer.epochs,
        "steps": trainer.step,
        "compiled": trainer.compiled,
        "history_sha256": recorder.folder.history_digest(),
        "overlap": overlaps,
        "seconds": {"train": trainer.seconds, "data": data_seconds},
        "tokens_per_second": trainer.rows_seen * dataset.seq_len / trainer.seconds,
    }


class _Unusable(Exception):
    """A checkpoint that cannot be gone on from."""


class _Recorder(Callback):
    """Keeps a run's history and checkpoint, and ends the run in order when it is told to.

    The checkpoint holds the history as well, so that one file is all that a run goes on from. There
    is one every `interval` seconds, and at the end of an epoch unless the last one took more than a
    fiftieth of the time since.
    """

    def __init__(self, folder: RunFolder, interval: float, watch: Watch) -> None:
        self.folder = folder
        self.interval = interval
        self.watch = watch
        self.history: list[dict[str, float]] = []
        self._saved = time.perf_counter()
        self._cost = 0.0

    def resume(self, trainer: Trainer) -> None:
        """Put the trainer where the last checkpoint was taken, if there is one.

        Raises:
            _Unusable: It is damaged; the trainer may be, too.
        """
        path = self.folder.checkpoint
        if not path.exists():
            return
        try:
            with zipfile.ZipFile(path) as archive:  # PyTorch does not look at the checksums
                damaged = archive.testzip()
            if damaged is not None:
                raise _Unusable(f"{damaged} in it is damaged")
            state = torch.load(path, map_location=trainer.device, weights_only=True)
            trainer.load_state(state)
            self.history = [dict(row) for row in state["history"]]
            if len(self.history) != trainer.epoch:
                raise _Unusable(f"it has {len(self.history)} lines for {trainer.epoch} epochs")
        except _Unusable:
            raise
        except Exception as error:  # whatever other bytes make of it
            raise _Unusable(
                f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            ) from error
        if self.history:
            write_history(self.folder.history, self.history)
        log.info("going on after epoch %d (step %d)", trainer.epoch, trainer.step)

    def on_step(self, step: Step, trainer: Trainer) -> None:
        try:
            self.watch.check()
        except (Interrupted, RunsFailed) as stop:
            self._save(trainer)
            log.info("interrupted at step %d: the same command goes on from there", step.step)
            raise stop
        if time.perf_counter() - self._saved >= self.interval:
            self._save(trainer)

    def on_epoch(self, epoch: Epoch, trainer: Trainer) -> None:
        self.history.append(
            {
                "epoch": epoch.epoch,
                "step": epoch.step,
                **epoch.metrics,
                "lr": epoch.lr,
                "seconds": round(epoch.seconds, 3),
            }
        )
        write_history(self.folder.history, self.history)
        log.info("epoch %d: %s", epoch.epoch, epoch.metrics)
        last = epoch.epoch == trainer.epochs
        if last or time.perf_counter() - self._saved >= 50 * self._cost:
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        started = time.perf_counter()
        buffer = io.BytesIO()
        torch.save({**trainer.state(), "history": self.history}, buffer)
        write_bytes(self.folder.checkpoint, buffer.getvalue())
        self._saved = time.perf_counter()
        self._cost = self._saved - started


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
def _fitting_memory() -> Iterator[None]:
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


@contextmanager
def _locked(folder: RunFolder, wait: bool) -> Iterator[None]:
    """Hold the folder against other processes; the lock goes when its holder dies."""
    lock = FileLock(folder.lock)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise Elsewhere(folder.path.name) from None
        print(f"another process is at this run, waiting for it: {folder.path}", flush=True)
        lock.acquire()
    except OSError as error:
        raise CannotWrite(folder.lock, error.strerror or str(error)) from error
    try:
        yield
    finally:
        lock.release()


class _LogFile(logging.FileHandler):
    """A log that is not worth a traceback of its own when the disk is full."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Write what mixbench logs to the run's log as well."""
    handler = _LogFile(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("mixbench")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
