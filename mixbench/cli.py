"""The `mixbench` command."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException, ValidationError
from rich.console import Console

from mixbench.config import check
from mixbench.errors import RunsFailed, SettingError, nearest
from mixbench.progress import display
from mixbench.summary import run_table


def _config_folder() -> str:
    """`conf/`: inside the installed package, or beside it in the repository."""
    package = Path(__file__).resolve().parent
    inside = package / "conf"
    return str(inside if inside.is_dir() else package.parent / "conf")


@hydra.main(version_base="1.3", config_path=_config_folder(), config_name="train")
def train(cfg: DictConfig) -> float | None:
    """Train one configuration and show its summary.

    Returns:
        The validation metric; None if training diverged.

    Raises:
        SettingError: A wrong setting.
        RunsFailed: Training diverged, or an earlier record of this run says that it failed.
    """
    from mixbench.experiment import run

    hydra_cfg = HydraConfig.get()
    settings = check(cfg, [*hydra_cfg.overrides.task, *hydra_cfg.overrides.hydra])
    files = {
        "config.yaml": OmegaConf.to_yaml(cfg),
        "hydra.yaml": OmegaConf.to_yaml(OmegaConf.create({"hydra": hydra_cfg})),
        "overrides.yaml": OmegaConf.to_yaml(hydra_cfg.overrides.task),
    }
    console = Console()
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
    if result["status"] != "completed":
        raise RunsFailed(f"the run {result['status']}: {result['reason']}")
    score = result["metrics"][f"valid/{result['metric']}"]
    assert isinstance(score, float)
    return score


def main() -> None:
    """Entry point of the console script.

    A user's mistake is one line on standard error and exit code 2; runs that failed or diverged
    give exit code 1. Any other error is a programming error and keeps its traceback.
    """
    # Hydra would otherwise print its own text and leave; this hands us the exception.
    show_all = os.environ.setdefault("HYDRA_FULL_ERROR", "1") == "1" and "MIXBENCH_DEBUG" in os.environ
    try:
        train()
    except SettingError as error:
        _leave(str(error), 2, show_all)
    except RunsFailed as error:
        _leave(str(error), 1, show_all)
    except (HydraException, OmegaConfBaseException) as error:
        _leave(_one_line(error), 2, show_all)
    except KeyboardInterrupt:
        _leave("interrupted; the same command goes on from the last epoch", 130, show_all)


def _leave(message: str, code: int, show_traceback: bool) -> None:
    if show_traceback:
        raise
    print(f"mixbench: {message}", file=sys.stderr)
    sys.exit(code)


def _one_line(error: Exception) -> str:
    """What Hydra or OmegaConf says in several lines, as one that names the key."""
    cause: BaseException = error
    while not isinstance(cause, OmegaConfBaseException) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return str(
            SettingError(
                group,
                expected=f"one of {', '.join(sorted(error.options))}",
                got=name,
                fix=nearest(name, error.options),
            )
        )
    if isinstance(error, OverrideParseException):
        return f"override {error.override!r} cannot be parsed: {error.message.splitlines()[0]}"
    if isinstance(cause, ValidationError) and cause.full_key:
        return f"{cause.full_key}: {(cause.msg or str(cause)).splitlines()[0]}"
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        return _unknown_key(cause)
    return " ".join(str(error).split())


def _unknown_key(error: OmegaConfBaseException) -> str:
    key = str(error.full_key)
    parent = error.parent_node
    known = [str(name) for name in parent] if isinstance(parent, DictConfig) else []
    section = key.rpartition(".")[0]
    return str(
        SettingError(
            key,
            expected=f"a key of {section or 'the configuration'} ({', '.join(known)})",
            got="an unknown one",
            fix=nearest(key.rpartition(".")[2], known),
        )
    )


if __name__ == "__main__":
    main()
