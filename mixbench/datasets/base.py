"""What every dataset is: three splits from independent streams, and how predictions are scored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mixbench.core.configured import Configured

SplitName = Literal["train", "valid", "test"]


SPLITS: tuple[SplitName, ...] = ("train", "valid", "test")


Kind = Literal["tokens", "values"]


IGNORE = -100
"""The label of positions that are not asked for."""


@dataclass(frozen=True)
class Examples:
    """One split: `inputs [R, T]` and `targets`, row by row.

    Tokens: whole numbers, with a label at every position (`IGNORE` where none is asked for).
    Values: real numbers, with one target a row, `[R]`.
    """

    inputs: np.ndarray
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.inputs)


class Dataset(Configured, ABC):
    """A task. Its constructor takes the configuration's keys and only checks and keeps them.

    Attributes:
        kind: What rows hold and models give: `tokens` (classification where asked) or `values`
            (regression, one number a row).
        metric: Name of the metric that comparisons use.
        higher_is_better: Its direction.
        margin: The smallest difference in it that matters.
        ceiling: Its best possible value.
        seq_len: Length T of a row.
    """

    kind: Kind
    metric: str
    higher_is_better: bool
    margin: float
    ceiling: float
    seq_len: int

    @abstractmethod
    def size(self, split: SplitName) -> int:
        """Rows in a split, without making them; of the train split those in an epoch."""

    @abstractmethod
    def generate(self, split: SplitName, seed: int) -> Examples:
        """Make a split. Equal arguments give equal bytes."""

    def epoch_rows(self, progress: float) -> slice:
        """The train rows that an epoch visits which starts at this share (0 to 1) of training.

        All of them by default; a curriculum gives `size("train")` others at a time.
        """
        return slice(0, self.size("train"))

    def roles(self, rows: Examples) -> np.ndarray:
        """What each token is, for showing rows: `query` where a label is, else `token`. `[R, T]`.

        A subclass may know more: `key`, `value`, `filler`.
        """
        return np.where(rows.targets != IGNORE, "query", "token")

    @abstractmethod
    def metrics(self, predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Scores of predictions, which have the shape of `targets`."""

    @abstractmethod
    def trivial_baseline(self, rows: Examples) -> dict[str, float]:
        """What a forecast without any learning scores on these rows, by metric name."""


def overlap(rows: Examples, other: Examples) -> int:
    """How many of `rows` also occur in `other`, inputs compared in full."""
    known = {row.tobytes() for row in other.inputs}
    return sum(row.tobytes() in known for row in rows.inputs)
