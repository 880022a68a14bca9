"""A task and a mixer that say of themselves all that only they can say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixbench.api import IGNORE, Analysis, Dataset, Examples, Mixer, Objective, stream


class Bits(Dataset):
    """The first token at every position; how many bits a label takes is a metric, and the first."""

    objective = "tokens"
    metric = "bits"
    higher_is_better = False
    margin = 0.01
    ceiling = 0.0
    needs_scores = True

    def __init__(self, *, vocab_size: int, seq_len: int, rows: int, probe_len: int = 0) -> None:
        self.vocab_size, self.seq_len, self.rows = vocab_size, seq_len, rows
        self.probe_len = probe_len

    def size(self, split):
        return self.rows

    def generate(self, split, seed):
        rng = stream(seed, "data", split)
        inputs = rng.integers(0, self.vocab_size, size=(self.rows, self.seq_len))
        targets = np.repeat(inputs[:, :1], self.seq_len, axis=1)
        targets[::2, 0] = IGNORE
        return Examples(inputs, targets)

    def scores(self, outputs: np.ndarray, rows: Examples) -> np.ndarray:
        labels = rows.targets[rows.targets != IGNORE]
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        chosen = shifted[np.arange(len(labels)), labels]
        return chosen - np.log(np.exp(shifted).sum(axis=1))

    def score_metrics(self, scores: np.ndarray) -> dict[str, float]:
        return {"bits": float(-scores.mean() / np.log(2)), "labels": float(len(scores))}

    def metrics(self, predictions, targets):
        return {"accuracy": float((predictions == targets)[targets != IGNORE].mean())}

    def trivial_baseline(self, rows):
        return {"bits": float(np.log2(self.vocab_size))}

    def probes(self) -> Mapping[str, Dataset]:
        if not self.probe_len:
            return {}
        lengths = {"long": self.probe_len, "same": self.seq_len}
        return {
            name: Bits(vocab_size=self.vocab_size, seq_len=length, rows=3)
            for name, length in lengths.items()
        }

    def analyse(self, metrics: Mapping[str, float], state_size: int | None) -> Analysis:
        curve = {"state_size": [1.0, 2.0], "score": [0.5, 0.25]}
        values = {"bits over two": metrics["bits"] / 2}
        return Analysis("what bits tell", values, "halved", curve, "No state is that good.")


class Telling(Mixer):
    """Keeps its input; tells how many forward passes it has made, and the mean of its input."""

    def __init__(self, *, d_model: int, causal: bool) -> None:
        super().__init__(d_model=d_model, causal=causal)
        self.proj = nn.Linear(d_model, d_model)
        self.mean = 0.0
        self.largest = 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.mean, self.largest = float(x.detach().mean()), float(x.detach().max())
        return self.proj(x)

    def diagnostics(self) -> dict[str, float]:
        return {"mean_input": self.mean, "max_input": self.largest}


class AbsoluteError(Objective):
    """Regression by absolute error, for a model of its own."""

    name = "tests.support.owners.AbsoluteError"

    def counts(self, targets: Tensor) -> Tensor:
        return torch.ones_like(targets, dtype=torch.bool)

    def outputs(self, model, inputs: Tensor, counts: Tensor) -> Tensor:
        return model(inputs)

    def loss(self, outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        return F.l1_loss(outputs, targets, reduction=reduction)

    def predictions(self, outputs: Tensor) -> Tensor:
        return outputs
