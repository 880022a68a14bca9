"""MQAR: what every row must be, the slots' distribution, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mixbench.core.errors import SettingError
from mixbench.datasets.base import IGNORE, SPLITS, overlap
from mixbench.datasets.mqar import MQAR

SETTINGS = {
    "small": (64, 32, 4),
    "published_1": (8192, 64, 4),
    "published_4": (8192, 512, 64),
    "all_keys": (10, 16, 4),
    "odd_vocabulary": (13, 20, 5),
    "one_pair": (4, 4, 1),
}


def make(name: str = "small", filler: str = "zero", rows: int = 300) -> MQAR:
    vocab_size, seq_len, num_pairs = SETTINGS[name]
    return MQAR(
        vocab_size=vocab_size,
        seq_len=seq_len,
        num_pairs=num_pairs,
        filler=filler,
        num_train=rows,
        num_valid=rows,
        num_test=rows,
    )


@pytest.mark.parametrize("filler", ["zero", "random", "disjoint"])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_row_is_well_formed(name, filler):
    dataset = make(name, filler)
    N, K = dataset.vocab_size, dataset.num_pairs
    rows = dataset.generate("train", seed=0)
    assert rows.inputs.shape == rows.targets.shape == (300, dataset.seq_len)
    assert rows.inputs.min() >= 0
    assert rows.inputs.max() < N
    for tokens, labels in zip(rows.inputs.tolist(), rows.targets.tolist(), strict=True):
        keys, values = tokens[0 : 2 * K : 2], tokens[1 : 2 * K : 2]
        assert len(set(keys)) == K
        assert all(1 <= key <= N // 2 - 1 for key in keys)
        assert all(N // 2 <= value < N for value in values)
        pairs = dict(zip(keys, values, strict=True))
        asked = [t for t, label in enumerate(labels) if label != IGNORE]
        assert sorted(tokens[t] for t in asked) == sorted(keys)
        assert all(labels[t] == pairs[tokens[t]] for t in asked)
        assert all(t >= 2 * K and t % 2 == 0 for t in asked)


@pytest.mark.parametrize("filler", ["zero", "disjoint"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_dictionary_solves_every_row(name, filler):
    dataset = make(name, filler)
    rows = dataset.generate("test", seed=1)
    predictions = np.full_like(rows.targets, -1)
    for tokens, prediction in zip(rows.inputs, predictions, strict=True):
        memory = {}
        for t, token in enumerate(tokens[: 2 * dataset.num_pairs].tolist()):
            if t % 2 == 0:
                memory[token] = int(tokens[t + 1])
        for t in range(2 * dataset.num_pairs, dataset.seq_len):
            prediction[t] = memory.get(int(tokens[t]), IGNORE)
    # Answers exactly where asked, so no filler can be mistaken for a query either.
    assert np.array_equal(
        predictions[:, 2 * dataset.num_pairs :], rows.targets[:, 2 * dataset.num_pairs :]
    )
    assert dataset.metrics(predictions, rows.targets) == {"accuracy": 1, "sequence_accuracy": 1}


def test_fillers_are_what_they_are_called():
    K, T = 4, 32
    zero = make(filler="zero").generate("train", 0)
    filler = zero.targets[:, 2 * K :] == IGNORE
    assert not zero.inputs[:, 2 * K :][filler].any()
    published = make(filler="random", rows=3000).generate("train", 0)
    filler = published.targets[:, 2 * K :] == IGNORE
    tokens = published.inputs[:, 2 * K :]
    assert set(np.unique(tokens[filler])) == set(range(64))
    keys = published.inputs[:, 0 : 2 * K : 2]
    repeats = (tokens[:, :, None] == keys[:, None]).any(-1) & filler
    assert repeats[filler].mean() == pytest.approx(K / 64, rel=0.1)
    disjoint = make(filler="disjoint", rows=3000).generate("train", 0)
    filler = disjoint.targets[:, 2 * K :] == IGNORE
    tokens = disjoint.inputs[:, 2 * K :]
    keys = disjoint.inputs[:, 0 : 2 * K : 2]
    assert not ((tokens[:, :, None] == keys[:, None]).any(-1) & filler).any()
    # Uniform over what is left: value tokens, never keys, have the highest count.
    counts = np.bincount(tokens[filler], minlength=64)[32:]
    assert stats.chisquare(counts).pvalue > 1e-3
    assert disjoint.inputs.shape[1] == T


def test_slots_follow_the_power_law():
    """The first pair's query is the first draw, so its slot has exactly p(g) ~ g^(a-1)."""
    dataset = make("published_1", rows=20_000)
    rows = dataset.generate("train", 0)
    slot = 1 + (rows.inputs[:, 8:] == rows.inputs[:, :1]).argmax(axis=1) // 2
    g = np.arange(1, 29)
    p = g**-0.99 / (g**-0.99).sum()
    counts = np.bincount(slot, minlength=29)[1:]
    assert stats.chisquare(counts, 20_000 * p).pvalue > 1e-3
    assert stats.chisquare(counts).pvalue < 1e-12


def test_all_slots_without_replacement_match_numpys_draw():
    """Successive draws: the second key's slot against its distribution by enumeration."""
    dataset = make("published_1", rows=20_000)
    rows = dataset.generate("train", 3)
    slot = 1 + (rows.inputs[:, 8:] == rows.inputs[:, 2:3]).argmax(axis=1) // 2
    g = np.arange(1, 29)
    p = g**-0.99 / (g**-0.99).sum()
    second = np.array(
        [sum(p[i] * p[j] / (1 - p[i]) for i in range(28) if i != j) for j in range(28)]
    )
    counts = np.bincount(slot, minlength=29)[1:]
    assert stats.chisquare(counts, 20_000 * second).pvalue > 1e-3


def test_keys_and_values_are_uniform():
    rows = make(rows=20_000).generate("train", 0)
    for i in range(4):
        keys = np.bincount(rows.inputs[:, 2 * i], minlength=32)[1:32]
        values = np.bincount(rows.inputs[:, 2 * i + 1], minlength=64)[32:]
        assert stats.chisquare(keys).pvalue > 1e-3
        assert stats.chisquare(values).pvalue > 1e-3


def test_splits_come_from_three_streams():
    dataset = make()
    splits = {split: dataset.generate(split, seed=0) for split in SPLITS}
    for split in SPLITS:
        again = make().generate(split, seed=0)
        assert again.inputs.tobytes() == splits[split].inputs.tobytes()
        assert again.targets.tobytes() == splits[split].targets.tobytes()
        assert dataset.generate(split, seed=1).inputs.tobytes() != again.inputs.tobytes()
    assert overlap(splits["test"], splits["train"]) == 0
    assert overlap(splits["valid"], splits["train"]) == 0
    assert overlap(splits["test"], splits["valid"]) == 0
    assert overlap(splits["test"], splits["test"]) == 300


def test_data_ignores_the_global_generator_and_the_other_splits_sizes():
    np.random.seed(1)
    first = make(rows=300).generate("test", 0)
    np.random.seed(2)
    vocab_size, seq_len, num_pairs = SETTINGS["small"]
    dataset = MQAR(
        vocab_size=vocab_size,
        seq_len=seq_len,
        num_pairs=num_pairs,
        num_train=7,
        num_valid=9,
        num_test=300,
    )
    assert dataset.generate("test", 0).inputs.tobytes() == first.inputs.tobytes()


def test_memory_does_not_grow_with_the_vocabulary():
    """Rows x vocabulary would be 80 GB here."""
    dataset = MQAR(
        vocab_size=10_000_000,
        seq_len=16,
        num_pairs=4,
        num_train=1000,
        num_valid=1,
        num_test=1,
        filler="disjoint",
    )
    rows = dataset.generate("train", 0)
    assert rows.inputs.max() > 9_000_000


def curriculum(**change) -> MQAR:
    settings = {"vocab_size": 64, "seq_len": 64, "num_pairs": 12, "curriculum_start_pairs": 2}
    sizes = {"num_train": 50, "num_valid": 20, "num_test": 20}
    return MQAR(**{**settings, **sizes, **change})


def test_a_curriculum_doubles_the_pairs():
    dataset = curriculum(curriculum_end=0.75)
    rows = dataset.generate("train", 0)
    pairs = {}
    for progress in (0.0, 0.2, 0.25, 0.5, 0.74, 0.75, 1.0):
        visited = rows.targets[dataset.epoch_rows(progress)]
        assert len(visited) == dataset.size("train") == 50
        (pairs[progress],) = set((visited != IGNORE).sum(axis=1).tolist())
    assert pairs == {0.0: 2, 0.2: 2, 0.25: 4, 0.5: 8, 0.74: 8, 0.75: 12, 1.0: 12}
    assert overlap(rows, rows) == len(rows) == 200
    first, last = rows.inputs[:50], rows.inputs[-50:]
    assert not np.array_equal(first[:, :2], last[:, :2])


def test_a_curriculum_leaves_the_other_splits_and_its_absence_alone():
    for split in ("valid", "test"):
        with_one = curriculum().generate(split, 0)
        without = curriculum(curriculum_start_pairs=None).generate(split, 0)
        assert with_one.inputs.tobytes() == without.inputs.tobytes()
        assert with_one.targets.tobytes() == without.targets.tobytes()
    one_stage, none = (
        curriculum(curriculum_start_pairs=m).generate("train", 0) for m in (12, None)
    )
    assert one_stage.inputs.tobytes() == none.inputs.tobytes()


def test_metrics_and_chance():
    dataset = make()
    targets = np.array([[IGNORE, 40, IGNORE, 41], [IGNORE, 42, 43, IGNORE]])
    predictions = np.array([[7, 40, 7, 41], [7, 42, 0, 7]])
    assert dataset.metrics(predictions, targets) == {"accuracy": 0.75, "sequence_accuracy": 0.5}
    assert dataset.trivial_baseline(dataset.generate("test", 0)) == {
        "accuracy": 1 / 32,
        "sequence_accuracy": 32.0**-4,
        "context_accuracy": 0.25,
    }


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"seq_len": 33}, "seq_len"),
        ({"seq_len": 2}, "seq_len"),
        ({"num_pairs": 9}, "num_pairs"),
        ({"num_pairs": 0}, "num_pairs"),
        ({"vocab_size": 9}, "vocab_size"),
        ({"curriculum_start_pairs": 0}, "curriculum_start_pairs"),
        ({"curriculum_start_pairs": 5}, "curriculum_start_pairs"),
        ({"curriculum_end": 0.0}, "curriculum_end"),
        ({"curriculum_end": 1.1}, "curriculum_end"),
        ({"slot_exponent": 0.0}, "slot_exponent"),
        ({"slot_exponent": float("nan")}, "slot_exponent"),
        ({"num_test": 0}, "num_test"),
    ],
)
def test_impossible_settings_are_refused(change, key):
    settings = {
        "vocab_size": 64,
        "seq_len": 32,
        "num_pairs": 4,
        "num_train": 10,
        "num_valid": 10,
        "num_test": 10,
    }
    with pytest.raises(SettingError) as caught:
        MQAR(**{**settings, **change})
    assert caught.value.key == key
