"""Shared by all tests: golden files, and the command run as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

GOLDEN = Path(__file__).parent / "golden"

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


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
            [sys.executable, "-m", "mixbench.cli", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **options,  # type: ignore[call-overload]
        )

    return run
