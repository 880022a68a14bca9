"""How the command leaves: one line for a user's mistake, a traceback for ours."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import yaml
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from mixbench.config.hydra_errors import arguments_error, composition_error, file_read, yaml_error
from mixbench.core.errors import CannotWrite, RunsFailed, SettingError
from mixbench.core.interruption import Interrupted


@contextmanager
def exit_with_one_line() -> Iterator[None]:
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
        exit_with(error)
    except (HydraException, OmegaConfBaseException) as error:
        exit_with(composition_error(error))
    except yaml.YAMLError as error:
        exit_with(yaml_error(error))
    except UnicodeDecodeError as error:
        path = file_read(error)
        if path is None:
            raise
        exit_with(yaml_error(error, path))
    except ValueError as error:
        known = arguments_error(error, sys.argv[1:])
        if known is None:
            raise
        exit_with(known)
    except AssertionError as error:
        keys = [text.partition("=")[0] for text in sys.argv if text.startswith("sweep.")]
        if not keys or "Unexpected type for root" not in str(error):  # OmegaConf's, below null
            raise
        fix = "choose one first, e.g. sweep=laplacian"
        exit_with(SettingError(keys[0], expected="a comparison to set it in", got="none", fix=fix))
    except BrokenPipeError:
        exit_on_closed_pipe()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _write_no_more()
        exit_with(CannotWrite(error.filename or "the output", error.strerror or str(error)))
    except KeyboardInterrupt as error:
        signum = error.signum if isinstance(error, Interrupted) else signal.SIGINT
        text = f"interrupted; run the same command to resume: {_command()}"
        exit_with(RunsFailed(text), code=128 + signum)


def exit_on_closed_pipe() -> NoReturn:
    """Whoever read our output, `head` say, has seen enough."""
    _write_no_more()
    sys.exit(128 + signal.SIGPIPE)


def _write_no_more() -> None:
    """So that what is left in buffers is not tried again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command() -> str:
    return shlex.join(["mixbench", *sys.argv[1:]])


def exit_with(error: SettingError | RunsFailed, code: int | None = None) -> NoReturn:
    print(f"mixbench: {' '.join(str(error).split())}", file=sys.stderr)
    if code is None:
        code = 2 if isinstance(error, SettingError) else 1
    sys.exit(code)
