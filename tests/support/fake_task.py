"""A task with a known answer: mixers that are better by construction, equal, diverge, fail.

Rows are tokens; the label at the last position is the first token. A mixer that carries it there
solves the task, one that does not can only guess.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

import torch

from mixbench.core import seeds
from mixbench.datasets.base import IGNORE, Dataset, Examples
from mixbench.mixers.base import Mixer
from mixbench.mixers.claims import Claim

CONF = {
    "dataset/first_token.yaml": """
# @package _global_
# The first token, asked at the last position.
defaults:
  - override /model: language_model
allowed_targets: [tests.support.fake_task]
causal: true
conv_width: 0
out_gate: false
batch_size: 16
epochs: 4
model:
  d_model: 16
  num_layers: 1
dataset:
  _target_: tests.support.fake_task.FirstToken
  vocab_size: 4
  seq_len: 4
  rows: 128
""",
    **{
        f"mixer/{name.lower()}.yaml": f"""
# A mixer with a known answer.
_target_: tests.support.fake_task.{name}
d_model: ${{model.d_model}}
causal: ${{causal}}
gain: 1.0
"""
        for name in ("Plain", "Twin", "First", "Broken", "Failing", "Slow")
    },
    "mixer/seeded.yaml": """
# A mixer that is another one for every seed.
defaults:
  - first
gain: ${seed}
""",
    "sweep/known.yaml": """
# @package _global_
# A comparison with known verdicts.
defaults:
  - override /dataset: first_token
sweep:
  title: Known answers
  idea: [first, twin, broken]
  baselines: [plain]
  arms:
    plain: {mixer: plain, grid: {lr: [1e-2, 3e-2]}}
    first: {mixer: first, inherit: {lr: plain}, grid: {mixer: {gain: [0.5, 1.0]}}}
    twin: {mixer: twin, grid: {lr: [1e-2, 3e-2]}}
    broken: {mixer: broken, grid: {lr: [1e-2, 3e-2]}}
  selection_seeds: 1
  eval_seeds: 6
  ablations: {weak: [mixer.gain=0.0]}
  ablation_seeds: 2
  margin: 0.05
  published: first wins
hydra:
  mode: MULTIRUN
""",
    "sweep/small.yaml": """
# @package _global_
# The same task with two arms and few seeds.
defaults:
  - override /dataset: first_token
sweep:
  idea: first
  baselines: [plain]
  arms:
    plain: {mixer: plain, grid: {lr: [1e-2, 3e-2]}}
    first: {mixer: first, grid: {lr: [1e-2, 3e-2]}}
  selection_seeds: 2
  eval_seeds: 2
hydra:
  mode: MULTIRUN
""",
}

CONF["sweep/disturbed.yaml"] = """
# @package _global_
# Runs of some seconds, and an arm whose runs fail.
defaults:
  - override /dataset: first_token
epochs: 12
checkpoint_seconds: 0.5
sweep:
  idea: [slow, failing]
  baselines: [first]
  arms:
    first: {mixer: first, grid: {lr: [1e-2, 3e-2]}}
    slow: {mixer: slow, grid: {lr: [1e-2, 3e-2]}}
    failing: {mixer: failing, grid: {lr: [1e-2, 3e-2]}}
  selection_seeds: 1
  eval_seeds: 2
hydra:
  mode: MULTIRUN
"""


CONF["sweep/padded.yaml"] = """
# @package _global_
# Trials that look different: no gradient is as large as either limit.
defaults:
  - override /dataset: first_token
epochs: 1
sweep:
  idea: first
  baselines: [plain]
  arms:
    plain: {mixer: plain, grid: {grad_clip: [1e6, 1e7]}}
    first: {mixer: first, grid: {lr: [1e-2, 3e-2]}}
  selection_seeds: 2
  eval_seeds: 2
hydra:
  mode: MULTIRUN
"""

CONF["sweep/long.yaml"] = """
# @package _global_
# Runs of minutes, to be stopped.
defaults:
  - override /dataset: first_token
epochs: 5000
sweep:
  idea: slow
  baselines: [first]
  arms:
    first: {mixer: first, grid: {lr: [1e-2]}}
    slow: {mixer: slow, grid: {lr: [1e-2]}}
  selection_seeds: 2
  eval_seeds: 2
hydra:
  mode: MULTIRUN
"""


def write_conf(folder: Path) -> None:
    """Write the configurations into `folder/conf`."""
    for name, text in CONF.items():
        path = folder / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip())


class FirstToken(Dataset):
    """`permute_test` mixes up the test labels, to show that nothing but the verdict sees them."""

    objective = "tokens"
    metric = "accuracy"
    higher_is_better = True
    margin = 0.01
    ceiling = 1.0
    permute_test = False

    def __init__(self, *, vocab_size: int, seq_len: int, rows: int) -> None:
        self.vocab_size, self.seq_len, self.rows = vocab_size, seq_len, rows

    def size(self, split):
        return self.rows

    def generate(self, split, seed):
        rng = seeds.stream(seed, "data", split)
        inputs = rng.integers(0, self.vocab_size, size=(self.rows, self.seq_len))
        labels = inputs[:, 0]
        if split == "test" and self.permute_test:
            labels = rng.permutation(labels)
        targets = inputs * 0 + IGNORE
        targets[:, -1] = labels
        return Examples(inputs, targets)

    def metrics(self, predictions, targets):
        return {"accuracy": float((predictions == targets)[:, -1].mean())}

    def trivial_baseline(self, rows):
        return {"accuracy": 1 / self.vocab_size}


class Plain(Mixer):
    def __init__(self, *, d_model: int, causal: bool, gain: float) -> None:
        super().__init__(d_model=d_model, causal=causal)
        self.gain = gain

    def forward(self, x):
        return self.gain * x

    def state_size(self, seq_len):
        return 0


class Twin(Plain):
    pass


class First(Plain):
    def forward(self, x):
        return self.gain * x[:, :1].expand_as(x)

    def signature(self, x):
        out = self(x)
        return [
            Claim.close("carries the first token", 0.0, float((out[:, -1] - out[:, 0]).norm()), 0.0)
        ]


class Broken(Plain):
    def forward(self, x):
        return x * torch.tensor(math.inf) if self.training else x


class Slow(First):
    """Long enough to be interrupted, killed and left alone."""

    def forward(self, x):
        if self.training:
            time.sleep(0.02)
        return super().forward(x)


class Failing(Plain):
    def forward(self, x):
        raise Unpicklable(width=x.shape[-1])


class Unpicklable(Exception):
    """Pools and launchers do not survive one of these as it is."""

    def __init__(self, *, width):
        super().__init__(f"no mixer of width {width}")
