"""Recurrences need more digits than 16-bit floats have."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")


R = TypeVar("R")


def at_least_float32(op: Callable[P, R]) -> Callable[P, R]:
    """Run an op outside autocast, with its 16-bit tensor arguments as float32."""

    def widen(x: Any) -> Any:
        narrow = isinstance(x, Tensor) and x.dtype in (torch.bfloat16, torch.float16)
        return x.float() if narrow else x

    @wraps(op)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        device = next((x.device.type for x in args if isinstance(x, Tensor)), "cpu")
        with torch.autocast(device, enabled=False):
            return op(*(widen(x) for x in args), **{k: widen(x) for k, x in kwargs.items()})

    return run
