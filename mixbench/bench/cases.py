"""What the bench measures, part by part. Every function yields one `Row` a measurement.

Letters: B batch, T time, D model width, H heads, K key width, V value width, N vocabulary. Inputs
are drawn from fixed seeds; a ratio always compares times that were taken turn by turn.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mixbench import seeds
from mixbench.accounting import counted_flops
from mixbench.bench.timing import Timing, interleaved, peak_memory
from mixbench.config import Settings
from mixbench.datasets.mqar import MQAR
from mixbench.experiment import Experiment
from mixbench.mixers.mixer import Mixer
from mixbench.models import mixer_inputs, mixers
from mixbench.ops.gated_delta_rule import (
    chunk_gated_delta_rule,
    gated_delta_rule,
    naive_gated_delta_rule,
)
from mixbench.ops.laplacian_attention import (
    laplacian_attention,
    laplacian_logits,
    naive_laplacian_logits,
)
from mixbench.ops.lattice_rule import lattice_rule

HEADS, WIDTH = 2, 32
COMPILED, CHUNKED = "delta rule", "delta rule, chunked in PyTorch"
STEPWISE, SDPA = "delta rule, stepwise", "attention (sdpa)"
BROADCAST, CDIST = "laplacian, broadcast", "cdist(p=1)"
_STEPS = 20  # of a stream, timed together
Build = Callable[[str, int], Mixer]

PARTS = ("machine", "ops", "mixers", "streaming", "training", "data", "start")


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
        timing = _timed(partial(torch.matmul, a, b), effort)
        yield _row("machine", "matrix product", "forward", n, timing, "FLOP", 2 * n**3)


def ops(effort: Effort) -> Iterator[Row]:
    """Fast forms against their definitions and against PyTorch's own attention."""
    for T in effort.lengths:
        yield from _delta_and_lattice(T, effort)
        yield from _laplacian(T, effort)


def _delta_and_lattice(T: int, effort: Effort) -> Iterator[Row]:
    B = _batch(T, effort)
    with seeds.torch_stream(0, "bench", "delta", T):
        q, k = (F.normalize(torch.randn(B, T, HEADS, WIDTH), dim=-1) for _ in range(2))
        v = torch.randn(B, T, HEADS, WIDTH)
        alpha = 0.9 + 0.1 * torch.rand(B, T, HEADS)
        beta = torch.rand(B, T, HEADS)
        write, read = 2 * torch.tanh(torch.randn(2, B, T, 2))
    content = [x.requires_grad_() for x in (q, k, v, alpha, beta)]
    one = torch.zeros(B, T, 2)
    # Neighbourhoods are 3 x 3: three cells apart, no two tokens share one.
    own = torch.stack([3.0 * torch.arange(T).float(), torch.zeros(T)], dim=-1).expand(B, T, 2)
    calls: dict[str, Callable[[], Tensor]] = {
        COMPILED: lambda: gated_delta_rule(q, k, v, alpha, beta)[0],
        CHUNKED: lambda: chunk_gated_delta_rule(q, k, v, alpha, beta)[0],
        STEPWISE: lambda: naive_gated_delta_rule(q, k, v, alpha, beta)[0],
        "lattice, within 2": lambda: lattice_rule(write, read, q, k, v, alpha, beta)[0],
        "lattice, one address": lambda: lattice_rule(one, one, q, k, v, alpha, beta)[0],
        "lattice, own address": lambda: lattice_rule(own, own, q, k, v, alpha, beta)[0],
        SDPA: lambda: F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        ),
    }
    if T > 1024:
        del calls[STEPWISE]
    versus = (STEPWISE, CHUNKED, COMPILED, SDPA)
    yield from _compared("ops", calls, content, T, B, versus, effort)


def _laplacian(T: int, effort: Effort) -> Iterator[Row]:
    # The definition's broadcast `[B, H, T, T, K]` must fit into the memory, its gradient too.
    B = min(_batch(T, effort), max(1, 2**28 // (HEADS * T * T * WIDTH)))
    with seeds.torch_stream(0, "bench", "laplacian", T):
        q, k, v = (torch.randn(B, HEADS, T, WIDTH).requires_grad_() for _ in range(3))
    sigma = torch.full((HEADS,), 0.7)
    calls: dict[str, Callable[[], Tensor]] = {
        "laplacian": lambda: laplacian_logits(q, k, sigma),
        BROADCAST: lambda: naive_laplacian_logits(q, k, sigma),
        CDIST: lambda: torch.cdist(q, k, p=1.0),
        "laplacian attention": lambda: laplacian_attention(q, k, v, sigma),
        SDPA: lambda: F.scaled_dot_product_attention(q, k, v),
    }
    if HEADS * T * T * WIDTH > 2**28:
        del calls[BROADCAST]
    versus = (BROADCAST, CDIST, SDPA)
    yield from _compared("ops", calls, [q, k, v], T, B, versus, effort)


def every_mixer(build: Build, names: Sequence[str], effort: Effort) -> Iterator[Row]:
    """All mixers on equal inputs, causal; ratios are to dense attention.

    Args:
        build: Makes a mixer from its name and T.
        names: Choices of the `mixer` group.
        effort: How much.
    """
    for T in effort.lengths:
        B = max(1, effort.tokens // T)
        with seeds.torch_stream(0, "bench", "mixers", T):
            built = {name: build(name, T) for name in names}
            x = torch.randn(B, T, built[names[0]].d_model).requires_grad_()
        calls: dict[str, Callable[[], Tensor]] = {
            name: partial(mixer, x) for name, mixer in built.items()
        }
        leaves = [x, *(p for mixer in built.values() for p in mixer.parameters())]
        yield from _compared("mixers", calls, leaves, T, B, ("attention",), effort)


def streaming(build: Build, names: Sequence[str], effort: Effort) -> Iterator[Row]:
    """One step after a context; ratios are the same mixer's shortest context's time to it."""
    for name in names:
        mixer = build(name, 2 * max(effort.contexts))
        try:
            state = mixer.init_state(1)
        except NotImplementedError:
            continue
        shortest: float | None = None
        seen = 0
        for context in sorted(effort.contexts):
            with torch.no_grad(), seeds.torch_stream(0, "bench", "streaming", context):
                for x in torch.randn(max(0, context - seen), 1, mixer.d_model):
                    _, state = mixer.step(x, state)
                stream = _Stream(mixer, torch.randn(1, mixer.d_model), state)
                timing = _timed(stream.some_steps, effort).times(1 / _STEPS)
                state, seen = stream.state, context + stream.steps
            shortest = shortest or timing.median
            ratio = {"its shortest context": shortest / timing.median}
            yield _row("streaming", name, "step", context, timing, "tokens", 1, ratio)


class _Stream:
    """Goes on stepping: each step from the state that the one before left."""

    def __init__(self, mixer: Mixer, token: Tensor, state: Any) -> None:
        self.mixer = mixer
        self.token = token
        self.state = state
        self.steps = 0

    def some_steps(self) -> None:
        for _ in range(_STEPS):
            _, self.state = self.mixer.step(self.token, self.state)
        self.steps += _STEPS


def training(settings: Settings, effort: Effort) -> Iterator[Row]:
    """One training step of a configuration and its pieces, each forward and backward alone."""
    experiment = Experiment(settings)
    model, dataset = experiment.model, experiment.dataset
    rows = dataset.generate("train", 0)
    B = settings.batch_size
    inputs, targets = torch.from_numpy(rows.inputs[:B]), torch.from_numpy(rows.targets[:B])
    if dataset.kind == "values":
        inputs, targets = inputs.float(), targets.float()
    asked = targets != -100

    def loss() -> Tensor:
        if dataset.kind == "tokens":
            return F.cross_entropy(model(inputs, asked), targets[asked])
        return F.mse_loss(model(inputs), targets)

    def whole() -> None:
        experiment.optimizer.zero_grad(set_to_none=True)
        loss().backward()
        experiment.optimizer.step()

    whole()  # gradients for the optimizer alone
    layers = mixers(model)
    seen = mixer_inputs(model, *((inputs, asked) if dataset.kind == "tokens" else (inputs,)))
    xs = [x.requires_grad_() for x in seen]
    calls: dict[str, Callable[[], object]] = {
        "whole step": whole,
        "forward and backward": lambda: loss().backward(),
        "mixers": lambda: [m(x).square().sum().backward() for m, x in zip(layers, xs, strict=True)],
        "optimizer": experiment.optimizer.step,
        "batch from the data": lambda: (
            rows.inputs[np.arange(B) % len(rows)],
            rows.targets[np.arange(B) % len(rows)],
        ),
    }
    if dataset.kind == "tokens":
        h = xs[0].detach().requires_grad_()
        blocks: list[Any] = [module for module in model.modules() if hasattr(module, "mlp")]
        head: Any = model
        calls["MLPs and their norms"] = lambda: [
            block.mlp(block.norm2(h)).square().sum().backward() for block in blocks
        ]
        calls["norm, head and loss"] = lambda: F.cross_entropy(
            head.head(head.norm(h[asked])), targets[asked]
        ).backward()
    times = interleaved(calls, effort.repeats, effort.seconds)
    name = settings.mixer["_target_"].rpartition(".")[2]
    for piece, timing in times.items():
        share = {"whole step": times["whole step"].median / timing.median}
        yield _row("training", f"{name}: {piece}", "step", B, timing, "rows", B, ratios=share)


def data(effort: Effort) -> Iterator[Row]:
    """MQAR rows against a generator that permutes the vocabulary for every row."""
    for seq_len, num_pairs in ((64, 4), (256, 64)):
        n = 2000
        task = MQAR(
            vocab_size=8192,
            seq_len=seq_len,
            num_pairs=num_pairs,
            num_train=n,
            num_valid=1,
            num_test=1,
        )

        def permuting(seq_len: int = seq_len, num_pairs: int = num_pairs) -> None:
            rng = np.random.default_rng(0)
            for _ in range(100):
                _permuted_row(rng, 8192, seq_len, num_pairs)

        calls: dict[str, Callable[[], object]] = {
            "fast": partial(task.generate, "train", 0),
            "permuting": permuting,
        }
        times = interleaved(calls, effort.repeats, effort.seconds)
        ratio = times["permuting"].median / 100 / (times["fast"].median / n)
        name = f"MQAR, N 8192, K {num_pairs}"
        yield _row(
            "data", name, "generate", seq_len, times["fast"], "rows", n, {"permuting": ratio}
        )
        yield _row(
            "data", f"{name}, permuting", "generate", seq_len, times["permuting"], "rows", 100
        )


def _permuted_row(rng: np.random.Generator, N: int, T: int, K: int) -> np.ndarray:
    """One row of MQAR by way of a permuted vocabulary and weighted slots, as generators do."""
    keys = 1 + rng.permutation(N // 2 - 1)[:K]
    values = N // 2 + rng.permutation(N - N // 2)[:K]
    slots = np.arange(1, (T - 2 * K) // 2 + 1)
    weights = slots ** (0.01 - 1)
    chosen = rng.choice(len(slots), size=K, replace=False, p=weights / weights.sum())
    row = np.zeros(T, dtype=np.int64)
    row[0 : 2 * K : 2], row[1 : 2 * K : 2] = keys, values
    row[2 * K + 2 * chosen] = keys
    return row


def start(effort: Effort) -> Iterator[Row]:
    """Whole processes, from nothing to their end, and what one more run of a grid adds."""
    with TemporaryDirectory() as folder:
        commands = {
            "import torch": ["-c", "import torch"],
            "mixbench --help": ["-m", "mixbench.cli", "--help"],
            "mixbench report --help": ["-m", "mixbench.cli", "report", "--help"],
            "mixbench list": ["-m", "mixbench.cli", "list"],
            "a run of one step": ["-m", "mixbench.cli", *_TINY_RUN],
        }
        for runs in (1, 9):
            several = f"seed={','.join(map(str, range(runs)))}"
            commands[f"a grid of {runs}"] = ["-m", "mixbench.cli", "-m", *_TINY_RUN, several]
        calls = {name: partial(_process, arguments, folder) for name, arguments in commands.items()}
        times = interleaved(calls, min(5, effort.repeats), effort.seconds)
    for name, timing in times.items():
        yield _row("start", name, "process", 0, timing)
    more = times["a grid of 9"].median - times["a grid of 1"].median
    one = Timing(more / 8, more / 8, more / 8, times["a grid of 9"].repeats)
    yield _row("start", "one more run of a grid", "process", 0, one)


# One step of training, everything before and behind it.
_TINY_RUN = [
    "mixer=attention", "steps=1", "batch_size=8", "dataset.num_train=8", "dataset.num_valid=8",
    "dataset.num_test=8", "rerun=all",
]  # fmt: skip


def _process(arguments: Sequence[str], folder: str) -> None:
    """Run Python with some arguments in a folder, to its end."""
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=folder)


def _compared(
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
            row = _row(part, name, what, size, timing, "tokens", tokens, ratios, peak, batch)
            flops = counted_flops(wrapped[name]) if what == "forward" else None
            yield replace(row, flops=flops)


def _row(
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


def _timed(function: Callable[[], object], effort: Effort) -> Timing:
    return interleaved({"": function}, effort.repeats, effort.seconds)[""]


def _batch(T: int, effort: Effort) -> int:
    """B sequences, or as many as keep a definition's memory and time within reason."""
    return max(1, min(effort.batch, 2**16 // T))
