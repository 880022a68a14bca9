"""Multi-query associative recall (Arora et al. 2023, arXiv 2312.04927, "Zoology")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from mixbench.core import seeds
from mixbench.core.errors import SettingError, at_least, positive
from mixbench.datasets.base import IGNORE, Analysis, Dataset, Examples, SplitName

Filler = Literal["zero", "random", "disjoint"]


# Rows made at a time: bounds the temporaries to a few megabytes whatever the split's size.
_ROWS_AT_ONCE = 4096


class MQAR(Dataset):
    """K (key, value) pairs, then each key once more: answer it with its value.

    Keys come from 1..N/2-1 without repetition in a row, values from N/2..N-1. After the pairs, the
    even offsets are the query slots 1..(T - 2K)/2; the K keys get slots drawn without replacement
    with `p(g) ~ g^(slot_exponent - 1)`, the first pair's key the first draw. All other positions
    are filler. The label at a queried key is its value, elsewhere -100.

    One row, N 12, T 16, K 2, zero filler:

        in    3  9  5  7  0  0  5  0  0  0  0  0  3  0  0  0
        label .  .  .  .  .  .  7  .  .  .  .  .  9  .  .  .

    Args:
        vocab_size: Tokens N.
        seq_len: Length T, even.
        num_pairs: Pairs K; 4K positions are needed.
        curriculum_start_pairs: Curriculum: the first train epoch's rows have this many pairs, and
            the number doubles up to `num_pairs`. The other splits' rows always have `num_pairs`.
            None for no curriculum.
        curriculum_end: Share of training over which a curriculum reaches `num_pairs`.
        slot_exponent: Exponent a of the slots' power law; 1 draws them uniformly.
        filler: `zero`; `random`, from the whole vocabulary as published, which may repeat a key of
            the row; `disjoint`, random but never one of the row's keys.
        num_train: Rows in the train split; with a curriculum, for each number of pairs.
        num_valid: Rows in the validation split.
        num_test: Rows in the test split.

    Raises:
        SettingError: A value that no row can be made with.
    """

    objective = "tokens"
    metric = "accuracy"
    higher_is_better = True
    margin = 0.01
    ceiling = 1.0
    renamed = {  # noqa: RUF012
        "min_pairs": "curriculum_start_pairs",
        "growth": "curriculum_end",
        "power": "slot_exponent",
    }

    def __init__(
        self,
        *,
        vocab_size: int,
        seq_len: int,
        num_pairs: int,
        curriculum_start_pairs: int | None = None,
        curriculum_end: float = 0.6,
        slot_exponent: float = 0.01,
        filler: Filler = "zero",
        num_train: int,
        num_valid: int,
        num_test: int,
    ) -> None:
        if seq_len < 4 or seq_len % 2:
            raise SettingError("seq_len", expected="an even number of at least 4", got=seq_len)
        if not 1 <= num_pairs <= seq_len // 4:
            raise SettingError(
                "num_pairs",
                expected=f"1 to {seq_len // 4} (seq_len={seq_len} holds seq_len / 4 pairs)",
                got=num_pairs,
                fix=f"lower it or raise dataset.seq_len to {4 * max(1, num_pairs)} or more",
            )
        if vocab_size // 2 - 1 < num_pairs:
            raise SettingError(
                "vocab_size",
                expected=f"at least {2 * num_pairs + 2} (vocab_size / 2 - 1 keys for "
                f"num_pairs={num_pairs} without repetition)",
                got=vocab_size,
            )
        first = num_pairs if curriculum_start_pairs is None else curriculum_start_pairs
        if not 1 <= first <= num_pairs:
            raise SettingError(
                "curriculum_start_pairs", expected=f"1 to num_pairs={num_pairs}", got=first
            )
        if not 0 < curriculum_end <= 1:
            raise SettingError(
                "curriculum_end", expected="a share above 0, at most 1", got=curriculum_end
            )
        positive("slot_exponent", slot_exponent)
        for key, rows in (
            ("num_train", num_train),
            ("num_valid", num_valid),
            ("num_test", num_test),
        ):
            at_least(key, rows, 1)
        self.vocab_size = vocab_size
        self.seq_len = seq_len
        self.num_pairs = num_pairs
        self.curriculum_end = curriculum_end
        self.stages = _doublings(first, num_pairs)
        self.slot_exponent = slot_exponent
        self.filler = filler
        self._size: dict[SplitName, int] = {
            "train": num_train,
            "valid": num_valid,
            "test": num_test,
        }

    def size(self, split: SplitName) -> int:
        return self._size[split]

    def epoch_rows(self, progress: float) -> slice:
        """One curriculum stage after another, equally long; the last from `curriculum_end` on."""
        last = len(self.stages) - 1
        stage = min(last, int(progress / self.curriculum_end * last + 1e-9))
        size = self._size["train"]
        return slice(stage * size, (stage + 1) * size)

    def generate(self, split: SplitName, seed: int) -> Examples:
        """Tokens and labels `[R, T]`, int64; a curriculum's stages one after another."""
        rng = seeds.stream(seed, "data", split)
        stages = self.stages if split == "train" else [self.num_pairs]
        size = self._size[split]
        inputs = np.empty((len(stages) * size, self.seq_len), dtype=np.int64)
        labels = np.full(inputs.shape, IGNORE, dtype=np.int64)
        for stage, num_pairs in enumerate(stages):
            end = (stage + 1) * size
            for start in range(stage * size, end, _ROWS_AT_ONCE):
                stop = min(start + _ROWS_AT_ONCE, end)
                self._fill(rng, num_pairs, inputs[start:stop], labels[start:stop])
        return Examples(inputs, labels)

    def roles(self, rows: Examples) -> np.ndarray:
        """Keys and values in turn, then queries among filler; `[R, T]`."""
        roles = np.where(rows.targets != IGNORE, "query", "filler")
        pairs = 2 * (rows.targets != IGNORE).sum(axis=1, keepdims=True)
        position = np.arange(self.seq_len)
        return np.where(position < pairs, np.where(position % 2, "value", "key"), roles)

    def metrics(self, predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """`accuracy` per query and `sequence_accuracy`: rows with every query right.

        Args:
            predictions: Predicted tokens `[R, T]`; only target positions count.
            targets: Labels `[R, T]`.
        """
        is_target = targets != IGNORE
        right = predictions == targets
        return {
            "accuracy": float(right[is_target].mean()),
            "sequence_accuracy": float((right | ~is_target).all(axis=1).mean()),
        }

    def trivial_baseline(self, rows: Examples) -> dict[str, float]:
        """Guessing uniformly among all values; `context_accuracy`: among the row's own values."""
        num_values = self.vocab_size - self.vocab_size // 2
        return {
            "accuracy": 1 / num_values,
            "sequence_accuracy": float(num_values) ** -self.num_pairs,
            "context_accuracy": 1 / self.num_pairs,
        }

    def analyse(self, metrics: Mapping[str, float], state_size: int | None) -> Analysis:
        """What K pairs take, and what of it the trained model recalls (Fano's inequality)."""
        from mixbench.stats.recall import STATE_BITS, bits_to_recall, recalled_bits  # SciPy

        K, W = self.num_pairs, self.vocab_size - self.vocab_size // 2
        bits = float(recalled_bits(K, W, 1 - metrics["accuracy"]))
        values = {"recalled bits": bits}
        if state_size:
            held = state_size * STATE_BITS
            values |= {f"state bits ({STATE_BITS} a number)": held, "recalled / state": bits / held}
        accuracy = np.linspace(1 / W, 1, 101)
        needed = recalled_bits(K, W, 1 - accuracy)
        curve = {"state_size": needed / STATE_BITS, "score": accuracy}
        return Analysis(
            title=f"recall efficiency: {K} pairs with {W} values take at least "
            f"{bits_to_recall(K, W):.1f} bits",
            values=values,
            note=f"at least: sum of log2({W} - i) over i < {K}; recalled, on test: "
            f"{K} (log2 {W} - h2(e) - e log2 {W - 1}) with the error e, h2 the binary entropy "
            "(Fano's inequality); means over the completed runs",
            bound={name: each[needed >= 1].tolist() for name, each in curve.items()},
            bound_note=f"In the shaded region a state of so few numbers, {STATE_BITS} bits each, "
            "cannot hold what so many right answers take (Fano's inequality).",
        )

    def _fill(
        self, rng: np.random.Generator, num_pairs: int, inputs: np.ndarray, labels: np.ndarray
    ) -> None:
        rows, T = inputs.shape
        K, N = num_pairs, self.vocab_size
        keys = _distinct(rng, rows, K, N // 2 - 1) + 1
        values = rng.integers(N // 2, N, size=(rows, K))

        # The K smallest of exponential times over their rates are a draw without replacement, in
        # the order drawn (Efraimidis and Spirakis 2006).
        slots = np.arange(1, (T - 2 * K) // 2 + 1)
        times = rng.exponential(size=(rows, len(slots))) / slots ** (self.slot_exponent - 1)
        positions = 2 * K + 2 * np.argsort(times, axis=1)[:, :K]

        if self.filler == "zero":
            inputs[:] = 0
        elif self.filler == "random":
            inputs[:] = rng.integers(0, N, size=(rows, T))
        else:
            inputs[:] = _excluding(rng.integers(0, N - K, size=(rows, T)), np.sort(keys, axis=1), N)
        inputs[:, 0 : 2 * K : 2] = keys
        inputs[:, 1 : 2 * K : 2] = values
        np.put_along_axis(inputs, positions, keys, axis=1)
        np.put_along_axis(labels, positions, values, axis=1)


def _doublings(first: int, last: int) -> list[int]:
    """first, twice it, ..., below last; then last."""
    numbers = []
    while first < last:
        numbers.append(first)
        first *= 2
    return [*numbers, last]


def _distinct(rng: np.random.Generator, rows: int, count: int, population: int) -> np.ndarray:
    """Ordered draws without replacement from 0..population-1, `[rows, count]`.

    Floyd's sampling (Bentley and Floyd 1987), all rows at once: memory and time do not depend on
    the population. It gives a uniform set, which is then put into a random order.
    """
    chosen = np.empty((count, rows), dtype=np.int64)
    for i in range(count):
        top = population - count + i
        draw = rng.integers(0, top + 1, size=rows)
        taken = (chosen[:i] == draw).any(axis=0)
        chosen[i] = np.where(taken, top, draw)
    return rng.permuted(np.ascontiguousarray(chosen.T), axis=1)


def _excluding(ranks: np.ndarray, keys: np.ndarray, vocab_size: int) -> np.ndarray:
    """The tokens with these ranks among those that are not one of their row's keys.

    Args:
        ranks: Ranks in 0..N-K-1, `[R, T]`.
        keys: Each row's keys ascending `[R, K]`.
        vocab_size: N.
    """
    # The rank r becomes r plus the number of keys below it: those with key_j - j <= r. One sorted
    # search serves all rows when each row gets a number range of its own.
    rows, K = keys.shape
    row_start = np.arange(rows)[:, None] * vocab_size
    bounds = (keys - np.arange(K) + row_start).ravel()
    found = np.searchsorted(bounds, (ranks + row_start).ravel(), side="right")
    return ranks + found.reshape(ranks.shape) - np.arange(rows)[:, None] * K
