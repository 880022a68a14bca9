"""What a result may depend on beside its settings and the code: machine, versions, variables."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

import torch

from mixbench import __version__

# Variables that choose instructions, threads or the order of sums begin so.
_STEERING = (
    "ATEN_", "CUBLAS_", "CUDA_", "DNNL_", "GOMP_", "KMP_", "MKL_", "NUMBA_", "NVIDIA_TF32",
    "OMP_", "ONEDNN_", "OPENBLAS_", "TORCH_",
)  # fmt: skip

_ONEDNN = re.compile(r"MKL-DNN v?(\S+)")
_MKL = re.compile(r"(?:oneAPI )?Math Kernel Library Version (\S+)")
_BLAS_INFO = re.compile(r"BLAS_INFO=(\w+)")


def machine() -> dict[str, str | int | None]:
    """What the process runs on; the GPU's name where PyTorch sees one."""
    return {
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "cpu": _cpu_model(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def versions() -> dict[str, str]:
    """Of Python, of the packages that compute, and of the libraries within PyTorch."""
    built = torch.__config__.show()
    mkl, blas, onednn = (each.search(built) for each in (_MKL, _BLAS_INFO, _ONEDNN))
    return {
        "mixbench": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "numba", "hydra-core")},
        "blas": f"mkl {mkl[1]}" if mkl else blas[1] if blas else "unknown",
        "onednn": onednn[1] if onednn else "none",
    }


def steering_variables() -> dict[str, str]:
    """The environment variables that steer numerical libraries, as they are set."""
    return {key: os.environ[key] for key in sorted(os.environ) if key.startswith(_STEERING)}


def _cpu_model() -> str:
    """The processor's name; Python knows it on some systems only."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()
