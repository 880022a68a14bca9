"""Timing and memory of a function, on a machine that others use too."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mixbench.core.memory import release_freed_memory

_STATUS = Path("/proc/self/status")


_CLEAR = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Timing:
    """Wall-clock seconds of one call: median, fastest and slowest of `repeats`."""

    median: float
    fastest: float
    slowest: float
    repeats: int

    def times(self, factor: float) -> Timing:
        """The seconds of a part of the call, or of many."""
        median, fastest, slowest = (factor * x for x in (self.median, self.fastest, self.slowest))
        return Timing(median, fastest, slowest, self.repeats)


def interleaved(
    functions: Mapping[str, Callable[[], object]], repeats: int, seconds: float
) -> dict[str, Timing]:
    """Time several functions turn by turn, so that a busy moment hits all of them alike.

    Args:
        functions: What to time, by name.
        repeats: Turns at most.
        seconds: No new turn starts after this long, but two are always made.
    """
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    start = time.perf_counter()
    for turn in range(repeats):
        if turn >= 2 and time.perf_counter() - start > seconds:
            break
        for name, function in functions.items():
            clock = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - clock)
    return {
        name: Timing(statistics.median(all_), min(all_), max(all_), len(all_))
        for name, all_ in times.items()
    }


def peak_memory(function: Callable[[], object]) -> int | None:
    """Bytes by which a call raises the process's resident memory at its peak.

    What earlier calls left to the allocator is handed back first, where that is possible. None
    where the system does not tell (only Linux does).
    """
    release_freed_memory()
    try:
        _CLEAR.write_text("5")  # the peak starts anew from what is resident now
        before = _resident("VmRSS")
        function()
        return max(0, _resident("VmHWM") - before)
    except OSError:
        return None


def _resident(key: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} does not tell {key}")
