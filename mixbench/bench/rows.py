"""A line of a benchmark, and how it is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mixbench.core import seeds
from mixbench.core.timing import Timing, interleaved, peak_memory
from mixbench.models.measure import measured_flops


@dataclass(frozen=True)
class Effort:
    """How much to measure.

    Attributes:
        lengths: Sequence lengths T.
        tokens: Tokens a batch, B T, of the mixers.
        batch: Sequences B of the ops.
        contexts: Tokens seen before a streaming step is timed.
        repeats: Turns at most.
        seconds: No new turn starts after this long.
    """

    lengths: Sequence[int]
    tokens: int
    batch: int
    contexts: Sequence[int]
    repeats: int
    seconds: float


@dataclass(frozen=True)
class Row:
    """One measurement: `seconds` a call and what they are compared with.

    Attributes:
        part: One of `PARTS`.
        name: What was run.
        what: `forward`, `forward+backward`, `step`, ...
        size: T, context or rows, whatever grows.
        batch: Sequences B.
        per: What a rate counts: `tokens`, `rows`; empty if nothing.
        count: How many of those one call handles.
        ratios: Time of something else over this one's, by its name: 2 means twice as fast.
        flops: Floating-point operations in matrix products, as PyTorch counts them.
    """

    part: str
    name: str
    what: str
    size: int
    batch: int
    seconds: Timing
    threads: int
    per: str = ""
    count: int = 0
    peak_memory: int | None = None
    ratios: Mapping[str, float] = field(default_factory=dict)
    flops: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def machine(effort: Effort) -> Iterator[Row]:
    """Square matrix products in float32: the rate that nothing here can exceed."""
    for n in (256, 512, 1024):
        with seeds.torch_stream(0, "bench", "machine", n):
            a, b = torch.randn(n, n), torch.randn(n, n)
        timing = timed(partial(torch.matmul, a, b), effort)
        yield one_row("machine", "matrix product", "forward", n, timing, "FLOP", 2 * n**3)


def compared_rows(
    part: str,
    calls: Mapping[str, Callable[[], Tensor]],
    leaves: Sequence[Tensor],
    size: int,
    batch: int,
    versus: Sequence[str],
    effort: Effort,
) -> Iterator[Row]:
    """Forward alone and with backward, in turns; ratios of the others' times to each one's."""

    def both(call: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            for leaf in leaves:
                leaf.grad = None
            call().square().sum().backward()

        return run

    def forward(call: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                call()

        return run

    for what, wrap in (("forward", forward), ("forward+backward", both)):
        wrapped = {name: wrap(call) for name, call in calls.items()}
        times = interleaved(wrapped, effort.repeats, effort.seconds)
        for name, timing in times.items():
            ratios = {
                other: times[other].median / timing.median
                for other in versus
                if other in times and other != name
            }
            peak = peak_memory(wrapped[name])
            tokens = batch * size
            row = one_row(part, name, what, size, timing, "tokens", tokens, ratios, peak, batch)
            flops = measured_flops(wrapped[name]) if what == "forward" else None
            yield replace(row, flops=flops)


def one_row(
    part: str,
    name: str,
    what: str,
    size: int,
    timing: Timing,
    per: str = "",
    count: int = 0,
    ratios: Mapping[str, float] | None = None,
    peak: int | None = None,
    batch: int = 1,
) -> Row:
    threads = torch.get_num_threads()
    return Row(part, name, what, size, batch, timing, threads, per, count, peak, ratios or {})


def timed(function: Callable[[], object], effort: Effort) -> Timing:
    return interleaved({"": function}, effort.repeats, effort.seconds)[""]
