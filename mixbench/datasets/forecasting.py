"""Forecasting: a window of a time series to its next value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mixbench.core import seeds
from mixbench.core.errors import SettingError, at_least
from mixbench.datasets.base import SPLITS, Dataset, Examples, SplitName

Series = Literal["sinusoids", "mackey_glass", "sunspots", "co2"]


_REAL = ("sunspots", "co2")


_USUAL_ROWS: dict[SplitName, int] = {"train": 400, "valid": 200, "test": 200}


# The noisy mixture: periods that share no small multiple, so that no window repeats.
_PERIODS = np.array([5.3, 11.7, 29.1])


_AMPLITUDES = np.array([1.0, 0.8, 0.6])


_NOISE = 0.1


class Forecasting(Dataset):
    """Windows of `seq_len` values to the value after them, in units of the train split's spread.

    Every split is a stretch of the series of its own, cut into overlapping windows; no value is in
    two splits. One row, seq_len 4, of the yearly sunspot numbers (before standardising):

        in      5  11  16  23        1700 to 1703
        target  36                   1704

    Series:
        sinusoids: three sinusoids (periods 5.3, 11.7 and 29.1 steps) and white noise of 0.1; each
            split has phases and noise of its own.
        mackey_glass: `dx/dt = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x(t)` (Mackey and Glass
            1977), sampled once a time unit after the transient; each split starts elsewhere.
        sunspots: yearly mean sunspot numbers 1700-2008 (NOAA; `series/sunspots.csv`).
        co2: weekly CO2 at Mauna Loa 1958-2001 (Keeling and Whorf; `series/co2.csv`), weeks without
            a measurement interpolated.

    The two real series are split in time, train first and test last, and are the same for every
    seed.

    Args:
        series: Which series.
        seq_len: Window length T.
        num_train: Rows in the train split. None for 400, or for half of the windows that a short
            real series holds.
        num_valid: Rows in the validation split. None for 200, or for a quarter of them.
        num_test: Rows in the test split. None for 200, or for a quarter of them.

    Raises:
        SettingError: Sizes that are not positive, or more rows than a real series holds.
    """

    objective = "values"
    metric = "mse"
    higher_is_better = False
    margin = 0.01
    ceiling = 0.0

    def __init__(
        self,
        *,
        series: Series = "sinusoids",
        seq_len: int = 32,
        num_train: int | None = None,
        num_valid: int | None = None,
        num_test: int | None = None,
    ) -> None:
        at_least("seq_len", seq_len, 1)
        self.series = series
        self.seq_len = seq_len
        given: dict[SplitName, int | None] = {
            "train": num_train,
            "valid": num_valid,
            "test": num_test,
        }
        for split, rows in given.items():
            if rows is not None:
                at_least(f"num_{split}", rows, 1)
        self._size = self._sizes(given)

    @classmethod
    def files_read(cls, arguments: Mapping[str, Any]) -> list[Path]:
        series = arguments.get("series")
        ours = [_path(series)] if isinstance(series, str) and series in _REAL else []
        return [*super().files_read(arguments), *ours]

    def size(self, split: SplitName) -> int:
        return self._size[split]

    def generate(self, split: SplitName, seed: int) -> Examples:
        """Windows `[R, T]` and next values `[R]`, float64."""
        train = self._stretch("train", seed)
        values = (self._stretch(split, seed) - train.mean()) / train.std()
        windows = np.lib.stride_tricks.sliding_window_view(values, self.seq_len + 1)
        return Examples(windows[:, :-1].copy(), windows[:, -1].copy())

    def metrics(self, predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """`mse`, the mean squared error in units of the train split's variance."""
        return {"mse": float(np.mean((predictions - targets) ** 2))}

    def trivial_baseline(self, rows: Examples) -> dict[str, float]:
        """The persistence forecast: the next value is the last one."""
        return self.metrics(rows.inputs[:, -1], rows.targets)

    def _sizes(self, given: dict[SplitName, int | None]) -> dict[SplitName, int]:
        wanted = {split: given[split] or _USUAL_ROWS[split] for split in SPLITS}
        if self.series not in _REAL:
            return wanted
        windows = len(_load(self.series)) - len(SPLITS) * self.seq_len
        if windows < len(SPLITS):
            raise SettingError(
                "seq_len",
                expected=f"at most {len(_load(self.series)) // len(SPLITS) - 1} for three splits "
                f"of series={self.series}",
                got=self.seq_len,
            )
        if all(rows is None for rows in given.values()) and sum(wanted.values()) > windows:
            quarter = windows // 4
            return {"train": windows - 2 * quarter, "valid": quarter, "test": quarter}
        if sum(wanted.values()) > windows:
            sizes = ", ".join(f"num_{split}={rows}" for split, rows in wanted.items())
            raise SettingError(
                "num_train",
                expected=f"at most {windows} windows in all three splits of "
                f"series={self.series} with seq_len={self.seq_len}",
                got=sizes,
                fix="set all three, or none to share what there is",
            )
        return wanted

    def _stretch(self, split: SplitName, seed: int) -> np.ndarray:
        """The values of a split: one window more than its rows."""
        length = self._size[split] + self.seq_len
        if self.series in _REAL:
            # The last values of the series, so that the test split is the most recent.
            later = SPLITS[SPLITS.index(split) + 1 :]
            end = -sum(self._size[other] + self.seq_len for other in later)
            values = _load(self.series)
            return values[len(values) + end - length : len(values) + end]
        rng = seeds.stream(seed, "data", split)
        return _sinusoids(rng, length) if self.series == "sinusoids" else _mackey_glass(rng, length)


def _sinusoids(rng: np.random.Generator, length: int) -> np.ndarray:
    phases = rng.uniform(0, 2 * np.pi, size=len(_PERIODS))
    angles = 2 * np.pi * np.arange(length)[:, None] / _PERIODS + phases
    return np.sin(angles) @ _AMPLITUDES + _NOISE * rng.normal(size=length)


def _mackey_glass(
    rng: np.random.Generator, length: int, delay: int = 17, transient: int = 500, per_unit: int = 10
) -> np.ndarray:
    """Fourth-order Runge-Kutta with `per_unit` steps a time unit.

    The half steps need the delayed value between two grid points; a cubic through the four nearest
    ones keeps the order. Only the kink at time zero, where the constant history ends, costs about
    1e-5 once, long before the transient is over.
    """
    h = 1 / per_unit
    lag = delay * per_unit
    steps = (transient + length) * per_unit
    x = np.empty(lag + steps + 1)
    x[: lag + 1] = rng.uniform(0.5, 1.5)  # constant before time zero

    def slope(value: float, delayed: float) -> float:
        return 0.2 * delayed / (1 + delayed**10) - 0.1 * value

    for i in range(lag, lag + steps):
        past = i - lag
        before = x[past - 1] if past > 0 else x[0]
        middle = (-before + 9 * x[past] + 9 * x[past + 1] - x[past + 2]) / 16
        k1 = slope(x[i], x[past])
        k2 = slope(x[i] + h / 2 * k1, middle)
        k3 = slope(x[i] + h / 2 * k2, middle)
        k4 = slope(x[i] + h * k3, x[past + 1])
        x[i + 1] = x[i] + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x[lag + transient * per_unit :: per_unit][:length]


def _path(series: str) -> Path:
    return Path(__file__).parent / "series" / f"{series}.csv"


def _load(series: str) -> np.ndarray:
    """The values of a shipped series, gaps filled linearly."""
    lines = [line for line in _path(series).read_text().splitlines() if not line.startswith("#")]
    texts = [line.partition(",")[2] for line in lines[1:]]
    values = np.array([float(text) if text else np.nan for text in texts])
    known = ~np.isnan(values)
    at = np.arange(len(values))
    return np.interp(at, at[known], values[known])
