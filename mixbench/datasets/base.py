"""What every dataset is: three splits from independent streams, and how predictions are scored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from mixbench.core.configured import Configured

SplitName = Literal["train", "valid", "test"]


SPLITS: tuple[SplitName, ...] = ("train", "valid", "test")


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


@dataclass(frozen=True)
class Analysis:
    """What only a task can say of a trained run, for its record and the report's table.

    Attributes:
        title: Of the table, the same for all runs of a task.
        values: This run's numbers by the name of their column.
        note: What a reader of the table has to know.
        bound: The best score that is possible by the size of the state, rising in both: two lists
            of equal length, `state_size` and `score`. Empty for none.
        bound_note: What the bound means.
    """

    title: str
    values: Mapping[str, float]
    note: str = ""
    bound: Mapping[str, Sequence[float]] = field(default_factory=dict)
    bound_note: str = ""


class Dataset(Configured, ABC):
    """A task. Its constructor takes the configuration's keys and only checks and keeps them.

    Attributes:
        objective: What rows hold and models give: `tokens` (classification where asked), `values`
            (regression, one number a row), or the path of an `Objective` of your own.
        metric: Name of the metric that comparisons use.
        higher_is_better: Its direction.
        margin: The smallest difference in it that matters.
        ceiling: Its best possible value.
        seq_len: Length T of a row.
        needs_scores: Whether some metric needs more of the model's outputs than predictions: then
            `scores` and `score_metrics` are called.
    """

    objective: str
    metric: str
    higher_is_better: bool
    margin: float
    ceiling: float
    seq_len: int
    needs_scores: bool = False

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
        """Metrics of predictions, which have the shape of `targets`."""

    def scores(self, outputs: np.ndarray, rows: Examples) -> np.ndarray:
        """What metrics beyond predictions need of a batch's outputs; only with `needs_scores`.

        Args:
            outputs: Of the M positions that count, row by row: logits `[M, N]` or values `[M]`.
            rows: The batch.

        Returns:
            `[M, ...]`, for instance the log probability of each label.
        """
        raise NotImplementedError(f"{type(self).__name__} needs scores and makes none")

    def score_metrics(self, scores: np.ndarray) -> dict[str, float]:
        """Further metrics, from what `scores` gave for all batches of a split, `[M, ...]`."""
        raise NotImplementedError(f"{type(self).__name__} needs scores and has no use for them")

    def probes(self) -> Mapping[str, Dataset]:
        """Further test sets by name, longer, fuller or noisier: their `test` split is used.

        A trained model is evaluated on them once, after the test split. Nothing is chosen by them.
        """
        return {}

    def analyse(self, metrics: Mapping[str, float], state_size: int | None) -> Analysis | None:
        """What only this task can say of a run whose test split was read.

        Args:
            metrics: The test split's, by name.
            state_size: Numbers that the model's mixers hold a sequence, None where not known.
        """
        return None

    @abstractmethod
    def trivial_baseline(self, rows: Examples) -> dict[str, float]:
        """What a forecast without any learning scores on these rows, by metric name."""


def overlap(rows: Examples, other: Examples) -> int:
    """How many of `rows` also occur in `other`, inputs compared in full."""
    known = {row.tobytes() for row in other.inputs}
    return sum(row.tobytes() in known for row in rows.inputs)
