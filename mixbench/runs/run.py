"""One run, from checked settings to its record."""

from __future__ import annotations

import itertools
import logging
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from mixbench.config.settings import Settings
from mixbench.core.errors import CannotWrite, RunsFailed
from mixbench.core.files import make_folder, write_bytes
from mixbench.core.interruption import StopSignalPoller, defer_signals
from mixbench.core.memory import keep_freed_memory
from mixbench.datasets.base import SPLITS, Dataset, SplitName, overlap
from mixbench.datasets.cache import generated
from mixbench.loggers.dispatch import LoggerDispatch, attach_loggers
from mixbench.records.folder import RunFolder, needs_rerun
from mixbench.records.identity import files_read, folder_of, shared_code_version
from mixbench.records.result import COMPLETED, DIVERGED, FAILED, Result, as_result
from mixbench.runs.build import Experiment
from mixbench.runs.environment import machine, steering_variables, versions
from mixbench.runs.lock import locked, logging_to
from mixbench.runs.recorder import DIAGNOSTICS, CorruptCheckpoint, Recorder
from mixbench.train.events import Callback, Diverged
from mixbench.train.trainer import Trainer

log = logging.getLogger(__name__)


# Rows of the last split on which the trained mixers' signatures are evaluated.
_EXAMINED_ROWS = 32


@dataclass(frozen=True)
class Outcome:
    """A run's result and where its record lies; `reused` if the record was there before."""

    result: Result
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
        RunLockedByAnotherProcess: Another process is at this run, and `wait` is false.
        Interrupted: It was told to stop; its checkpoint is on disk.
        CannotWrite: The disk is full, or read-only.
        Exception: What training raised, after a `failed` record was written.
    """
    experiment = Experiment(settings)
    folder = folder_of(settings)
    watch = StopSignalPoller(sweep)
    watch.check()
    folder.create()
    with locked(folder, wait), logging_to(folder.log), defer_signals():
        folder.remove_leftovers()
        earlier, problems = folder.verify()
        for path, reason in problems:
            _quarantine(folder, path, reason)
        redo = needs_rerun(earlier, settings.rerun)
        if earlier is not None and not redo:
            return Outcome(earlier, folder, reused=True)
        if redo:
            for path in (folder.result, folder.checkpoint, folder.history):
                path.unlink(missing_ok=True)
        for name, text in (hydra_files or {}).items():
            make_folder(folder.path / ".hydra")
            write_bytes(folder.path / ".hydra" / name, text.encode())
        recorder = Recorder(folder, settings.checkpoint_seconds, watch)
        with attach_loggers(experiment.loggers, settings, folder, sweep) as loggers:
            try:
                result = _run(experiment, folder, recorder, callbacks, loggers)
            except CorruptCheckpoint as error:
                _quarantine(folder, folder.checkpoint, str(error))
                recorder = Recorder(folder, settings.checkpoint_seconds, watch)
                result = _run(Experiment(settings), folder, recorder, callbacks, loggers)
        if not settings.keep_checkpoint:
            folder.checkpoint.unlink(missing_ok=True)
        return Outcome(result, folder, reused=False)


def _quarantine(folder: RunFolder, path: Path, reason: str) -> None:
    aside = folder.quarantine(path)
    if aside is not None:
        log.warning("corrupt file %s moved to %s: %s", path, aside.name, reason)
        print(f"corrupt file moved to {aside}; the run will be repeated ({reason})", flush=True)


def _run(
    experiment: Experiment,
    folder: RunFolder,
    recorder: Recorder,
    callbacks: list[Callback],
    loggers: LoggerDispatch,
) -> Result:
    settings = experiment.settings
    torch.set_num_threads(settings.threads)
    keep_freed_memory()
    started = datetime.now(timezone.utc)
    parts: dict[str, Any] = {
        "status": FAILED,
        "reason": None,
        "identity": folder.identity,
        "code_version": shared_code_version(settings),
        "files_read": files_read(settings),
        "started": started.isoformat(timespec="seconds"),
        "seed": settings.seed,
        "device": settings.device,
        "threads": settings.threads,
        "dtype": settings.dtype,
        "machine": machine(),
        "versions": versions(),
        "environment": steering_variables(),
        "names": settings.names,
        "config": settings.recorded_settings(),
        **experiment.describe(),
        "metrics": {},
    }
    clock = time.perf_counter()
    try:
        parts |= experiment.costs()
        parts |= _train(experiment, recorder, [*callbacks, loggers])
        parts["analysis"] = _analysis(experiment.dataset, parts) if settings.test else None
    except (CorruptCheckpoint, CannotWrite, RunsFailed):
        raise
    except Diverged as error:
        log.warning("diverged at %s", error)
        parts |= {"status": DIVERGED, "reason": str(error)}
    except Exception as error:
        log.error("failed:\n%s", traceback.format_exc())
        parts["reason"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        # An interruption leaves no result, so that the same command goes on from the checkpoint.
        if parts["status"] != FAILED or parts["reason"] is not None:
            total = time.perf_counter() - clock - loggers.seconds
            parts["seconds"] = {"total": total, **parts.get("seconds", {})}
            result = as_result(parts)  # what is written can be read
            folder.write_result(result)
            log.info("%s, record in %s", result.status, folder.path)
    return result


def _train(experiment: Experiment, recorder: Recorder, callbacks: list[Callback]) -> dict[str, Any]:
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
    measured = ("train/", "valid/")
    valid = {k: value for k, value in recorder.history[-1].items() if k.startswith(measured)}
    last: SplitName = "test" if settings.test else "valid"
    test = trainer.evaluate("test") if settings.test else {}
    inputs, _ = trainer.tensors(last)
    return {
        "status": COMPLETED,
        "metrics": {**valid, **test},
        "trivial_baseline": dataset.trivial_baseline(rows[last]),
        "diagnostics": _within(DIAGNOSTICS, recorder.history[-1]),
        **experiment.examine(inputs[:_EXAMINED_ROWS]),
        "probes": _probes(experiment, trainer) if settings.test else {},
        "epochs": trainer.epochs,
        "steps": trainer.step,
        "compiled": trainer.compiled,
        "history_sha256": recorder.folder.history_digest(),
        "overlap": overlaps,
        "seconds": {"train": trainer.seconds, "data": data_seconds},
        "tokens_per_second": trainer.rows_seen * dataset.seq_len / trainer.seconds,
    }


def _probes(experiment: Experiment, trainer: Trainer) -> dict[str, dict[str, float] | None]:
    """Metrics of the further test sets; None for one that the model cannot be run on."""
    found: dict[str, dict[str, float] | None] = {}
    for name, dataset in experiment.probes.items():
        try:
            rows = dataset.generate("test", experiment.settings.seed)
            found[name] = trainer.probe(name, dataset, rows)
        except Exception:  # the trained run's result must not be lost for one
            log.warning("the probe %s cannot be run:\n%s", name, traceback.format_exc())
            found[name] = None
    return found


def _analysis(dataset: Dataset, parts: Mapping[str, Any]) -> dict[str, Any] | None:
    """What only the task can say of the trained model."""
    held = parts["measured_state_size"]
    held = parts["state_size"] if held is None else held
    try:
        found = dataset.analyse(_within("test", parts["metrics"]), held)
    except Exception:  # the trained run's result must not be lost for it
        log.warning("the task's analysis failed:\n%s", traceback.format_exc())
        return None
    return None if found is None else asdict(found)


def _within(start: str, values: Mapping[str, float]) -> dict[str, float]:
    """Those whose names begin with `start/`, by the rest of their names."""
    return {
        name.removeprefix(f"{start}/"): value
        for name, value in values.items()
        if name.startswith(f"{start}/")
    }
