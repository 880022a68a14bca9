"""`mixbench bench`: that everything is measured and ratios are what they say; never how fast."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from mixbench.bench import op_cases, system_cases
from mixbench.bench.rows import Effort, Row
from mixbench.bench.system_cases import PARTS
from mixbench.cli.bench import exponents
from mixbench.core.timing import Timing, interleaved, peak_memory
from tests.conftest import run_command

TINY = (
    "--lengths=8,16,32", "--contexts=3,9", "--tokens=32", "--batch=2", "--repeats=2",
    "--seconds=0.01", "--threads=1", "model.d_model=16", "dataset.num_train=80",
)  # fmt: skip


def bench(tmp_path, *arguments):
    return run_command("bench", *arguments, f"--out={tmp_path / 'b'}")


def test_every_part_is_measured(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(
        system_cases, "_process", lambda arguments, folder: None
    )  # each takes seconds
    assert bench(tmp_path, "mixer=lattice,spiderweb", *TINY) == 0
    content = json.loads((tmp_path / "b" / "bench.json").read_text())
    rows = content["rows"]
    assert {row["part"] for row in rows} == set(PARTS)
    assert {row["name"] for row in rows if row["part"] == "mixers"} == {
        "attention", "lattice", "spiderweb",
    }  # fmt: skip
    assert {row["size"] for row in rows if row["part"] == "ops"} == {8, 16, 32}
    assert {row["size"] for row in rows if row["part"] == "streaming"} == {3, 9}
    # Processes are not really started here: what one more run adds is a difference of nothings.
    assert all(row["seconds"]["median"] > 0 for row in rows if row["part"] != "start")
    names = {fit["name"] for fit in content["exponents"]}
    assert {"attention", "lattice", op_cases.CHUNKED, op_cases.STEPWISE} <= names
    assert (tmp_path / "b" / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert "GFLOP/s on this machine" in capfd.readouterr().out


def test_a_ratio_is_the_others_time_over_its_own(tmp_path):
    effort = Effort([8], 16, 2, [2], 3, 0.01)
    rows = {(row.name, row.what): row for row in op_cases.ops(effort)}
    for what in ("forward", "forward+backward"):
        chunked, stepwise = (rows[name, what] for name in (op_cases.CHUNKED, op_cases.STEPWISE))
        expected = stepwise.seconds.median / chunked.seconds.median
        assert chunked.ratios[op_cases.STEPWISE] == pytest.approx(expected)
        assert chunked.count == 2 * 8


def test_the_generator_that_data_is_compared_with_makes_rows_of_the_task():
    import numpy as np

    row = system_cases._permuted_row(np.random.default_rng(0), 64, 32, 4)
    keys, values = row[0:8:2], row[1:8:2]
    assert len(set(keys)) == 4
    assert keys.min() >= 1
    assert values.min() >= 32
    assert sorted(row[8:][row[8:] > 0]) == sorted(keys)
    assert all((np.flatnonzero(row[8:]) % 2) == 0)


def test_exponents_are_slopes():
    def row(size, seconds):
        timing = Timing(seconds, seconds, seconds, 1)
        return Row("ops", "x", "forward", size, 2, timing, 1)

    rows = [row(n, 3e-6 * n**1.5) for n in (10, 100, 1000)]
    assert exponents(rows)["x", "forward", 1] == pytest.approx(1.5)
    assert exponents(rows[:2]) == {}
    assert exponents([replace(each, part="data") for each in rows]) == {}


def test_functions_take_turns():
    order = []
    times = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 5, 0.0)
    assert order == ["a", "b"] * 3  # once to warm up, then the two turns that are always made
    assert times["a"].repeats == 2
    assert times["a"].fastest <= times["a"].median <= times["a"].slowest


def test_peak_memory_sees_a_large_array():
    import numpy as np

    peak = peak_memory(lambda: np.ones(20_000_000))
    if peak is None:
        pytest.skip("the system does not tell")
    assert peak > 150e6 * 0.8
    assert not math.isnan(peak)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--parts=opps"], "--parts: expected some of machine, ops, "),
        (["--lengths=0"], "--lengths: expected whole numbers of at least 1, got 0"),
        (["--threads=two"], "--threads: expected whole numbers"),
        (["mixer=latice"], "mixer: expected one of "),
        (["--nope"], "bench: expected arguments as --help lists them"),
        (["mixer.num_heads=3"], "mixer.num_heads: expected a divisor"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, capfd, arguments, says):
    assert bench(tmp_path, "--parts=training", *arguments) == 2
    err = capfd.readouterr().err
    assert err.startswith(f"mixbench: {says}")
    assert err.count("\n") == 1
