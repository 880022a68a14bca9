"""What Hydra calls: one run, or one job of a sweep."""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from mixbench.cli.exit import exit_on_closed_pipe, exit_with
from mixbench.config.check import check
from mixbench.config.settings import Settings
from mixbench.core.errors import (
    JobRaised,
    JobStopped,
    RunLockedByAnotherProcess,
    RunsFailed,
    SettingError,
)
from mixbench.core.interruption import Interrupted, handle_signals, is_sweeper, stop_sweep
from mixbench.core.plugins import config_folder
from mixbench.display.console import make_console
from mixbench.display.progress import display
from mixbench.display.run_tables import run_table, signature_line
from mixbench.records.result import COMPLETED, Result


@hydra.main(version_base="1.3", config_path=config_folder(), config_name="train")
def train(cfg: DictConfig) -> float | None:
    """Train one configuration, leave its record and show its summary.

    Returns:
        The validation metric.

    Raises:
        RunsFailed: In a job of a sweep, whatever went wrong; a single run prints it and exits.
    """
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        return _job(cfg)
    try:
        return _train(cfg)
    except (SettingError, RunsFailed) as error:
        # Leave from here: Hydra would print a second line of its own about the exception.
        exit_with(error)
    except BrokenPipeError:
        exit_on_closed_pipe()


def _job(cfg: DictConfig) -> float | None:
    """One run of a sweep, in whatever process its launcher has put it.

    Raises:
        RunsFailed: It did not complete. Exceptions come as text: they may be of classes that
            cannot be pickled, which pools and launchers do not survive.
    """
    try:
        with handle_signals():  # a launcher's worker has come here by another way than `main`
            return _train(cfg)
    except RunsFailed:
        raise
    except Interrupted as error:
        if is_sweeper() or _sweep_folder() is None:
            raise
        # The sweeper knows; raised as it is, a pool would kill others before they have saved.
        raise JobStopped(error.why, error.signum) from None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise JobRaised(reason, traceback.format_exc()) from None


def _sweep_folder() -> Path | None:
    """The folder of the sweep that this job is of; None under a sweeper that makes none."""
    folder = Path(HydraConfig.get().sweep.dir)
    return folder if folder.is_absolute() else None


def _train(cfg: DictConfig) -> float | None:
    hydra_cfg = HydraConfig.get()
    ours = str(hydra_cfg.sweeper._target_).startswith("hydra_plugins.mixbench_sweeper.")
    if cfg.sweep is not None and not (ours and hydra_cfg.mode == RunMode.MULTIRUN):
        raise SettingError(
            "sweep",
            expected="hydra.mode MULTIRUN and hydra/sweeper=mixbench with a comparison",
            got=f"{hydra_cfg.mode} and {hydra_cfg.sweeper._target_}",
            fix="end the YAML with `hydra: {mode: MULTIRUN}`",
        )
    settings = check(cfg, hydra_cfg)
    from mixbench.runs.run import run

    searched = hydra_cfg.mode == RunMode.MULTIRUN and not ours
    if searched:
        _check_direction(hydra_cfg.sweeper, settings)
    files = {
        "config.yaml": OmegaConf.to_yaml(cfg),
        "hydra.yaml": OmegaConf.to_yaml(OmegaConf.create({"hydra": hydra_cfg})),
        "overrides.yaml": OmegaConf.to_yaml(hydra_cfg.overrides.task),
    }
    sweep = _sweep_folder()
    if hydra_cfg.mode == RunMode.MULTIRUN:  # the sweeper shows all of its runs together
        if sweep is not None:  # a worker may have another working folder
            settings = replace(settings, output_dir=str(sweep.parent.parent))
        try:
            # Only a run that is there already and to be made anew is worth waiting for.
            wait = settings.rerun != "none"
            result = run(settings, [], files, wait=wait, sweep=sweep).result
        except RunLockedByAnotherProcess:
            raise  # the sweeper sees to it
        except Exception:
            _stop_others(settings, sweep)
            raise
    else:
        console = make_console()
        with display(console) as callback:
            outcome = run(settings, [callback], files)
        result = outcome.result
        if outcome.reused:
            console.print(
                f"this run has a record from {result.started}; rerun=all runs it again",
                highlight=False,
                soft_wrap=True,
            )
        console.print(run_table(result, outcome.folder.path))
        if result.signature is not None:
            console.print(signature_line(result.signature), soft_wrap=True)
    if searched:
        return report_to_optimizer(result, hydra_cfg.overrides.task)
    if result.status != COMPLETED:
        _stop_others(settings, sweep)
        raise RunsFailed(f"the run {result.status}: {result.reason}")
    return _score(result)


def _check_direction(sweeper: DictConfig, settings: Settings) -> None:
    """Refuse to let an optimizer look for the worst configuration."""
    from mixbench.runs.build import build_dataset

    dataset = build_dataset(settings)
    wanted = "maximize" if dataset.higher_is_better else "minimize"
    got = str(sweeper.get("direction", wanted)).rpartition(".")[2]
    if got != wanted:
        raise SettingError(
            "hydra.sweeper.direction", expected=f"{wanted} for {dataset.metric}", got=got
        )


def report_to_optimizer(result: Result, overrides: Sequence[str]) -> float:
    """A run's score for a sweeper that learns from it, and a line about it.

    A diverged run has the worst score, so that the search goes on and keeps away from there.
    """
    if result.status == COMPLETED:
        score = _score(result)
        said = f"valid {result.metric} {score:.4f}"
    else:
        score = -math.inf if result.higher_is_better else math.inf
        said = f"{result.status}: {result.reason}"
    print(f"{' '.join(overrides)}  {said}", flush=True)
    return score


def _score(result: Result) -> float:
    """A completed run's validation metric."""
    score = result.score("valid")
    assert score is not None  # a completed one has it
    return score


def _stop_others(settings: Settings, sweep: Path | None) -> None:
    if sweep is not None and settings.on_error == "stop":
        stop_sweep(sweep, "error")
