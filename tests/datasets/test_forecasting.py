"""Forecasting: windows, splits in time, the series themselves."""

from __future__ import annotations

import numpy as np
import pytest

from mixbench.datasets.base import SPLITS, overlap
from mixbench.datasets.forecasting import Forecasting, _load, _mackey_glass

SERIES = ["sinusoids", "mackey_glass", "sunspots", "co2"]


def values_of(rows):
    """The stretch of values that a split's windows were cut from."""
    return np.concatenate([rows.inputs[0], rows.targets])


@pytest.mark.parametrize("series", SERIES)
def test_rows_are_windows_and_next_values(series):
    dataset = Forecasting(series=series, seq_len=16)
    for split in SPLITS:
        rows = dataset.generate(split, seed=0)
        size = dataset.size(split)
        assert rows.inputs.shape == (size, 16)
        assert rows.targets.shape == (size,)
        assert np.array_equal(rows.inputs[1:, -1], rows.targets[:-1])
        assert np.array_equal(rows.inputs[1:, :-1], rows.inputs[:-1, 1:])
        assert np.isfinite(rows.inputs).all()


@pytest.mark.parametrize("series", SERIES)
def test_values_are_in_units_of_the_train_split(series):
    train = values_of(Forecasting(series=series).generate("train", 0))
    assert train.mean() == pytest.approx(0, abs=1e-12)
    assert train.std() == pytest.approx(1)


def test_published_sizes_and_what_a_short_series_holds():
    sizes = {s: [Forecasting(series=s).size(split) for split in SPLITS] for s in SERIES}
    assert sizes["sinusoids"] == sizes["mackey_glass"] == sizes["co2"] == [400, 200, 200]
    assert sizes["sunspots"] == [107, 53, 53]
    few = Forecasting(series="sunspots", num_train=50, num_valid=20, num_test=10)
    assert [few.size(split) for split in SPLITS] == [50, 20, 10]


@pytest.mark.parametrize("series", ["sunspots", "co2"])
def test_real_series_are_split_in_time(series):
    dataset = Forecasting(series=series)
    raw = _load(series)
    splits = [dataset.generate(split, 0) for split in SPLITS]
    mine = np.concatenate([values_of(rows) for rows in splits])
    # One stretch up to the last value, in order and without a gap: train, valid, test.
    end = raw[-len(mine) :]
    train = end[: len(values_of(splits[0]))]
    np.testing.assert_allclose(mine, (end - train.mean()) / train.std(), atol=1e-12)
    again = Forecasting(series=series).generate("test", 5)
    assert again.inputs.tobytes() == splits[2].inputs.tobytes()


def test_the_shipped_series_are_what_they_say():
    sunspots, co2 = _load("sunspots"), _load("co2")
    assert len(sunspots) == 309
    assert sunspots[:4].tolist() == [5, 11, 16, 23]
    assert sunspots.max() == pytest.approx(190.2)
    assert len(co2) == 2284
    assert co2[0] == 316.1
    assert np.isfinite(co2).all()
    assert 370 < co2[-1] < 373


@pytest.mark.parametrize("series", ["sinusoids", "mackey_glass"])
def test_synthetic_splits_come_from_three_streams(series):
    dataset = Forecasting(series=series)
    splits = {split: dataset.generate(split, 0) for split in SPLITS}
    assert overlap(splits["test"], splits["train"]) == 0
    assert overlap(splits["valid"], splits["train"]) == 0
    assert dataset.generate("test", 1).inputs.tobytes() != splits["test"].inputs.tobytes()
    np.random.seed(3)
    again = Forecasting(series=series, num_valid=7).generate("test", 0)
    assert again.inputs.tobytes() == splits["test"].inputs.tobytes()


def test_sinusoids_have_their_periods_and_noise():
    """The amplitude at each period, by least squares, and what is left."""
    x = values_of(Forecasting(num_train=4000).generate("train", 0))
    t = np.arange(len(x))
    waves = [f(2 * np.pi * t / p) for p in (5.3, 11.7, 29.1) for f in (np.sin, np.cos)]
    basis = np.stack([*waves, np.ones(len(x))], axis=1)
    weights = np.linalg.lstsq(basis, x, rcond=None)[0]
    amplitudes = np.hypot(weights[0:6:2], weights[1:6:2])
    np.testing.assert_allclose(amplitudes / amplitudes[0], [1, 0.8, 0.6], rtol=0.02)
    noise = (x - basis @ weights).std() / amplitudes[0]
    assert noise == pytest.approx(0.1, rel=0.05)


def test_mackey_glass_is_integrated_to_fourth_order():
    """Fourth order up to the first delayed kink (17 units), and the attractor's known range."""
    coarse, fine, finest = (
        _mackey_glass(np.random.default_rng(0), 100, transient=0, per_unit=n) for n in (2, 4, 8)
    )
    error, smaller = (np.abs(a - b)[:17].max() for a, b in ((coarse, fine), (fine, finest)))
    assert smaller == pytest.approx(error / 16, rel=0.2)
    usual, half = (
        _mackey_glass(np.random.default_rng(0), 100, transient=0, per_unit=n) for n in (10, 20)
    )
    assert np.abs(usual - half)[:17].max() < 1e-10
    assert np.abs(usual - half).max() < 2e-5
    x = _mackey_glass(np.random.default_rng(1), 3000)
    assert 0.2 < x.min() < 0.5
    assert 1.2 < x.max() < 1.5


def test_persistence_and_mse():
    dataset = Forecasting()
    rows = dataset.generate("test", 0)
    expected = np.mean((rows.inputs[:, -1] - rows.targets) ** 2)
    assert dataset.trivial_baseline(rows) == {"mse": pytest.approx(expected)}
    assert dataset.metrics(rows.targets + 2, rows.targets) == {"mse": pytest.approx(4)}


def test_every_mixer_beats_persistence_on_a_short_run(settings):
    from mixbench.runs.run import run

    for mixer in ("attention", "laplacian", "spiderweb", "local", "gated_deltanet"):
        # Not TINY: the task's own sizes, half of its epochs.
        chosen = settings(
            f"mixer={mixer}", "dataset=forecasting", "batch_size=128", "epochs=6",
            "dataset.num_train=400", "dataset.num_valid=50", "dataset.num_test=100",
            "model.d_model=32",
        )  # fmt: skip
        result = run(chosen, []).result
        assert result.metrics["test/mse"] < 0.7 * result.trivial_baseline["mse"], mixer
        assert result.signature.holds, mixer
