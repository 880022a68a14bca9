"""How a process deals with memory that it has freed."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

# Names of glibc's mallopt(3), and more than any tensor of a run here.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


_BYTES = 2**30


def keep_freed_memory() -> None:
    """Have the C library keep what is freed, for the next tensor of that size.

    By default it hands large blocks back to the system, and a training step gets them again page by
    page: a few percent of a small step, a quarter of a long one. The process stays as large as it
    once was. Does nothing but on Linux with glibc.
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _BYTES)
        mallopt(_M_TRIM_THRESHOLD, _BYTES)


def release_freed_memory() -> None:
    """Hand back what is kept, so that the next peak can be seen from outside; likewise."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Any:
    """One of glibc's functions; None on other systems."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), name, None)
