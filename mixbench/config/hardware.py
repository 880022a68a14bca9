"""What settings stand for on this machine: the device, and the instructions its CPU has."""

from __future__ import annotations

from mixbench.core.errors import SettingError


def found_device(name: str) -> str:
    """The device that a setting stands for on this machine.

    Raises:
        SettingError: It is none, or not here.
    """
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise SettingError("device", expected="auto, cpu or cuda", got=name)
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise SettingError(
            "device",
            expected="auto or cpu: PyTorch sees no CUDA device on this machine",
            got=name,
        )
    return "cuda" if name != "cpu" and has_cuda else "cpu"


def found_cpu_capability(name: str) -> str:
    """The instructions that PyTorch's CPU kernels use on this machine, e.g. AVX2.

    Other instructions sum in another order: digits differ.

    Raises:
        SettingError: The setting is for a machine with others.
    """
    import torch

    here: str = torch.backends.cpu.get_cpu_capability()
    if name not in ("auto", here):
        raise SettingError(
            "cpu_capability",
            expected=f"auto or {here}: that is what PyTorch uses on this machine",
            got=name,
            fix=f"with ATEN_CPU_CAPABILITY={name.lower()} in the environment it uses no more",
        )
    return here
