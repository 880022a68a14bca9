"""The `mixbench` command."""

from __future__ import annotations

import errno
import importlib
import json
import math
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import hydra
import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mixbench.completion import completing, offer
from mixbench.config import (
    Settings,
    check,
    refuse_own_keys,
    typed_overrides,
)
from mixbench.errors import (
    CannotWrite,
    Elsewhere,
    JobRaised,
    RunsFailed,
    SettingError,
    Stopped,
    nearest,
)
from mixbench.hydra_errors import arguments_error, composition_error, file_read, yaml_error
from mixbench.interruption import Interrupted, runs_a_sweep, signals_kept, stop_sweep
from mixbench.launchers import presets_alone
from mixbench.overrides import override_key
from mixbench.plugins import config_folder
from mixbench.progress import display
from mixbench.summary import make_console, run_table, signature_line


def compose_config(overrides: Sequence[str], config_dir: Path | None = None) -> DictConfig:
    """What the command would compose from overrides, without the `hydra` node.

    Args:
        overrides: As typed.
        config_dir: A folder of the user's own configurations.

    Raises:
        SettingError: There is no such folder.
    """
    texts = with_own_class(overrides)
    if config_dir is not None:
        if not config_dir.is_dir():
            raise SettingError("--config-dir", expected="a folder", got=config_dir)
        texts.append(f"hydra.searchpath=[{json.dumps(f'file://{config_dir.absolute()}')}]")
    with hydra.initialize_config_dir(config_folder(), version_base="1.3"):
        return hydra.compose("train", texts)


def composed_settings(overrides: Sequence[str], config_dir: Path | None = None) -> Settings:
    """What `compose_config` composes, checked.

    Raises:
        SettingError: Something in it is wrong.
    """
    return check(compose_config(overrides, config_dir), overrides)


def with_own_class(overrides: Sequence[str]) -> list[str]:
    """The overrides, where `mixer._target_=...` alone stands for `mixer=custom` and its knobs."""
    keys = [override_key(text) for text in overrides]
    if "mixer._target_" not in keys or "mixer" in keys:
        return list(overrides)
    added = [
        f"++{text}" if key.startswith("mixer.") and text.startswith("mixer.") else text
        for key, text in zip(keys, overrides, strict=True)
    ]
    return ["mixer=custom", *added]


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
        _leave(error)
    except BrokenPipeError:
        _leave_closed_pipe()


def _job(cfg: DictConfig) -> float | None:
    """One run of a sweep, in whatever process its launcher has put it.

    Raises:
        RunsFailed: It did not complete. Exceptions come as text: they may be of classes that
            cannot be pickled, which pools and launchers do not survive.
    """
    try:
        with signals_kept():  # a launcher's worker has come here by another way than `main`
            return _train(cfg)
    except RunsFailed:
        raise
    except Interrupted as error:
        if runs_a_sweep() or _sweep_folder() is None:
            raise
        # The sweeper knows; raised as it is, a pool would kill others before they have saved.
        raise Stopped(error.why, error.signum) from None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise JobRaised(reason, traceback.format_exc()) from None


def _sweep_folder() -> Path | None:
    """The folder of the sweep that this job is of; None under a sweeper that makes none."""
    folder = Path(HydraConfig.get().sweep.dir)
    return folder if folder.is_absolute() else None


# Imported when called: they bring scipy, matplotlib or torch, which no other start needs.
_COMMANDS = {
    "report": "mixbench.report.command",
    "bench": "mixbench.bench.command",
    "check": "mixbench.checks.command",
    "list": "mixbench.listing",
    "new": "mixbench.new",
    "data": "mixbench.data",
}


def main() -> None:
    """Entry point of the console script."""
    with told_in_one_line(), signals_kept():
        if sys.argv[1:] and sys.argv[1] in _COMMANDS:
            importlib.import_module(_COMMANDS[sys.argv[1]]).main(sys.argv[2:])
            return
        if completing(sys.argv[1:]) and not offer(_COMMANDS):
            return
        flags, overrides = _split_arguments(sys.argv[1:])
        _refuse_words(overrides)
        sys.argv[1:] = [*flags, *with_own_class(overrides)]
        refuse_own_keys(overrides)
        presets_alone(config_folder())
        train()


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Leave the process as the command does when something goes wrong inside.

    A user's mistake is one line on standard error and exit code 2; runs that failed or diverged
    give exit code 1. Any other error is a programming error and keeps its traceback.
    """
    # Hydra would otherwise print its own lines and exit; this hands us the exception.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
        sys.stdout.flush()  # what cannot be written is noticed here, not when Python ends
    except (SettingError, RunsFailed) as error:
        _leave(error)
    except (HydraException, OmegaConfBaseException) as error:
        _leave(composition_error(error))
    except yaml.YAMLError as error:
        _leave(yaml_error(error))
    except UnicodeDecodeError as error:
        path = file_read(error)
        if path is None:
            raise
        _leave(yaml_error(error, path))
    except ValueError as error:
        known = arguments_error(error, sys.argv[1:])
        if known is None:
            raise
        _leave(known)
    except AssertionError as error:
        keys = [text.partition("=")[0] for text in sys.argv if text.startswith("sweep.")]
        if not keys or "Unexpected type for root" not in str(error):  # OmegaConf's, below null
            raise
        fix = "choose one first, e.g. sweep=laplacian"
        _leave(SettingError(keys[0], expected="a comparison to set it in", got="none", fix=fix))
    except BrokenPipeError:
        _leave_closed_pipe()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _write_no_more()
        _leave(CannotWrite(error.filename or "the output", error.strerror or str(error)))
    except KeyboardInterrupt as error:
        signum = error.signum if isinstance(error, Interrupted) else signal.SIGINT
        text = f"interrupted; the same command goes on from there: {_command()}"
        _leave(RunsFailed(text), code=128 + signum)


def _leave_closed_pipe() -> NoReturn:
    """Whoever read our output, `head` say, has seen enough."""
    _write_no_more()
    sys.exit(128 + signal.SIGPIPE)


def _write_no_more() -> None:
    """So that what is left in buffers is not tried again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command() -> str:
    return shlex.join(["mixbench", *sys.argv[1:]])


def _split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Flags and overrides: Hydra refuses them mixed, as in `mixer=lattice -m lr=1e-3,3e-3`."""
    parser = get_args_parser()
    parser.error = _unknown_flag  # type: ignore[method-assign]
    overrides: list[str] = parser.parse_intermixed_args(arguments).overrides
    flags = list(arguments)
    for override in overrides:
        flags.remove(override)
    return flags, overrides


def _unknown_flag(message: str) -> NoReturn:
    raise SettingError("arguments", expected="flags as --hydra-help lists them", got=message)


def _refuse_words(overrides: Sequence[str]) -> None:
    """Refuse what is neither a command nor a setting, e.g. a mistyped command."""
    for text in overrides:
        if "=" not in text and not text.startswith("~"):
            raise SettingError(
                "command",
                expected=f"key=value or one of the commands {', '.join(_COMMANDS)}",
                got=text,
                fix=nearest(text, _COMMANDS),
            )


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
    settings = check(cfg, typed_overrides(hydra_cfg))
    from mixbench.experiment import run

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
        except Elsewhere:
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
                f"this run has a record from {result['started']}; rerun=all runs it again",
                highlight=False,
                soft_wrap=True,
            )
        console.print(run_table(result, outcome.folder.path))
        if result.get("signature") is not None:
            console.print(signature_line(result["signature"]), soft_wrap=True)
    if searched:
        return _told(result, hydra_cfg.overrides.task)
    if result["status"] != "completed":
        _stop_others(settings, sweep)
        raise RunsFailed(f"the run {result['status']}: {result['reason']}")
    return _score(result)


def _check_direction(sweeper: DictConfig, settings: Settings) -> None:
    """Refuse to let an optimizer look for the worst configuration."""
    from mixbench.experiment import build_dataset

    dataset = build_dataset(settings)
    wanted = "maximize" if dataset.higher_is_better else "minimize"
    got = str(sweeper.get("direction", wanted)).rpartition(".")[2]
    if got != wanted:
        raise SettingError(
            "hydra.sweeper.direction", expected=f"{wanted} for {dataset.metric}", got=got
        )


def _told(result: Mapping[str, Any], overrides: Sequence[str]) -> float:
    """A run's score for a sweeper that learns from it, and a line about it.

    A diverged run has the worst score, so that the search goes on and keeps away from there.
    """
    if result["status"] == "completed":
        score = _score(result)
        said = f"valid {result['metric']} {score:.4f}"
    else:
        score = -math.inf if result["higher_is_better"] else math.inf
        said = f"{result['status']}: {result['reason']}"
    print(f"{' '.join(overrides)}  {said}", flush=True)
    return score


def _score(result: Mapping[str, Any]) -> float:
    """A completed run's validation metric."""
    return float(result["metrics"][f"valid/{result['metric']}"])


def _stop_others(settings: Settings, sweep: Path | None) -> None:
    if sweep is not None and settings.on_error == "stop":
        stop_sweep(sweep, "error")


def _leave(error: SettingError | RunsFailed, code: int | None = None) -> NoReturn:
    print(f"mixbench: {' '.join(str(error).split())}", file=sys.stderr)
    if code is None:
        code = 2 if isinstance(error, SettingError) else 1
    sys.exit(code)


if __name__ == "__main__":
    main()
