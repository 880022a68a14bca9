"""Shared by all tests: golden files, and the command run as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mixbench.cli import main as cli
from mixbench.config.check import check
from mixbench.config.compose import compose_config
from mixbench.config.settings import Settings
from mixbench.datasets import cache

GOLDEN = Path(__file__).parent / "golden"

# A run of a second: 30 rows, 4 steps an epoch.
TINY = (
    "epochs=3",
    "batch_size=8",
    "model.d_model=16",
    "dataset.num_train=30",
    "dataset.num_valid=10",
    "dataset.num_test=10",
)

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def run_command(*arguments: object) -> int:
    """Runs the command in this process, as a user's shell would: its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["mixbench", *map(str, arguments)])
        try:
            cli.main()
        except SystemExit as exit_:
            return int(exit_.code or 0)
    return 0


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_splits_kept() -> None:
    """Tests change what datasets do."""
    cache._splits.clear()


@pytest.fixture(autouse=True)
def imports_undone(tmp_path_factory) -> Iterator[None]:
    """A command reaches modules in its folder: those of one test are not the next one's."""
    known = list(sys.path)
    yield
    sys.path[:] = known
    folder = str(tmp_path_factory.getbasetemp())
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(folder):
            del sys.modules[name]


@pytest.fixture
def capfd_of(capfd) -> Callable[[Callable[[], int]], tuple[int, str, str]]:
    """Calls a command and gives its exit code, standard output and standard error."""

    def run(command: Callable[[], int]) -> tuple[int, str, str]:
        capfd.readouterr()
        return command(), *capfd.readouterr()

    return run


@pytest.fixture
def golden() -> Callable[[str], dict[str, Tensor]]:
    """Loads a golden file as tensors."""

    def load(name: str) -> dict[str, Tensor]:
        with np.load(GOLDEN / f"{name}.npz") as arrays:
            return {key: torch.from_numpy(arrays[key]) for key in arrays.files}

    return load


@pytest.fixture
def mixbench(tmp_path: Path) -> Command:
    """Runs the command in an empty folder, in a process of its own."""

    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mixbench", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **options,  # type: ignore[call-overload]
        )

    return run


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Settings]:
    """Composes and checks a configuration from overrides; records go to a folder of the test's."""

    def make(*overrides: str) -> Settings:
        texts = [*TINY, f"output_dir={tmp_path}/outputs", *overrides]
        cfg = compose_config(texts)
        return check(cfg, cfg.hydra, overrides)

    return make
