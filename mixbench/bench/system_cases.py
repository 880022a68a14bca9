"""Training, data and the start of a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mixbench.bench.rows import Effort, Row, one_row
from mixbench.config.settings import Settings
from mixbench.core.timing import Timing, interleaved
from mixbench.datasets.base import Examples
from mixbench.datasets.mqar import MQAR
from mixbench.models.inspect import mixer_inputs
from mixbench.models.language_model import LanguageModel
from mixbench.runs.build import Experiment
from mixbench.train.objective import objective_of

PARTS = ("machine", "ops", "mixers", "streaming", "training", "data", "start")


def training(settings: Settings, effort: Effort) -> Iterator[Row]:
    """One training step of a configuration and its pieces, each forward and backward alone."""
    experiment = Experiment(settings)
    model, dataset = experiment.model, experiment.dataset
    objective = objective_of(dataset)
    rows = dataset.generate("train", 0)
    B = settings.batch_size
    batch = Examples(rows.inputs[:B], rows.targets[:B])
    inputs, targets = objective.tensors(batch, torch.device("cpu"), torch.float32)
    counts = objective.counts(targets)

    def loss() -> Tensor:
        return objective.loss(objective.outputs(model, inputs, counts), targets[counts])

    def whole() -> None:
        experiment.optimizer.zero_grad(set_to_none=True)
        loss().backward()
        experiment.optimizer.step()

    whole()  # gradients for the optimizer alone
    seen = mixer_inputs(model, inputs)
    layers = [(mixer, x.requires_grad_()) for mixer, x in seen.items()]
    calls: dict[str, Callable[[], object]] = {
        "whole step": whole,
        "forward and backward": lambda: loss().backward(),
        "mixers": lambda: [mixer(x).square().sum().backward() for mixer, x in layers],
        "optimizer": experiment.optimizer.step,
        "batch from the data": lambda: (
            rows.inputs[np.arange(B) % len(rows)],
            rows.targets[np.arange(B) % len(rows)],
        ),
    }
    if isinstance(model, LanguageModel):
        calls |= _language_model_pieces(model, next(iter(seen.values())), targets, counts)
    times = interleaved(calls, effort.repeats, effort.seconds)
    name = settings.mixer["_target_"].rpartition(".")[2]
    for piece, timing in times.items():
        share = {"whole step": times["whole step"].median / timing.median}
        yield one_row("training", f"{name}: {piece}", "step", B, timing, "rows", B, ratios=share)


def _language_model_pieces(
    model: LanguageModel, h: Tensor, targets: Tensor, counts: Tensor
) -> dict[str, Callable[[], object]]:
    """What is no mixer, forward and backward on some activations `[B, T, D]`."""
    h = h.detach().requires_grad_()
    blocks: list[Any] = list(model.blocks)
    return {
        "MLPs and their norms": lambda: [
            block.mlp(block.norm2(h)).square().sum().backward() for block in blocks
        ],
        "norm, head and loss": lambda: F.cross_entropy(
            model.head(model.norm(h[counts])), targets[counts]
        ).backward(),
    }


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
        yield one_row(
            "data", name, "generate", seq_len, times["fast"], "rows", n, {"permuting": ratio}
        )
        yield one_row(
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
            "mixbench --help": ["-m", "mixbench.cli.main", "--help"],
            "mixbench report --help": ["-m", "mixbench.cli.main", "report", "--help"],
            "mixbench list": ["-m", "mixbench.cli.main", "list"],
            "a run of one step": ["-m", "mixbench.cli.main", *_TINY_RUN],
        }
        for runs in (1, 9):
            several = f"seed={','.join(map(str, range(runs)))}"
            commands[f"a grid of {runs}"] = ["-m", "mixbench.cli.main", "-m", *_TINY_RUN, several]
        calls = {name: partial(_process, arguments, folder) for name, arguments in commands.items()}
        times = interleaved(calls, min(5, effort.repeats), effort.seconds)
    for name, timing in times.items():
        yield one_row("start", name, "process", 0, timing)
    more = times["a grid of 9"].median - times["a grid of 1"].median
    one = Timing(more / 8, more / 8, more / 8, times["a grid of 9"].repeats)
    yield one_row("start", "one more run of a grid", "process", 0, one)


# One step of training, everything before and behind it.
_TINY_RUN = [
    "mixer=attention", "steps=1", "batch_size=8", "dataset.num_train=8", "dataset.num_valid=8",
    "dataset.num_test=8", "rerun=all",
]  # fmt: skip


def _process(arguments: Sequence[str], folder: str) -> None:
    """Run Python with some arguments in a folder, to its end."""
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=folder)
