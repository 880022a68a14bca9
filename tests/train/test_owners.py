"""Datasets own their objective, metrics, probes and analysis, mixers their diagnostics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from mixbench.compare.collect import collect
from mixbench.compare.compare import compare
from mixbench.core.errors import SettingError
from mixbench.datasets.base import Examples
from mixbench.datasets.forecasting import Forecasting
from mixbench.models.window_regressor import WindowRegressor
from mixbench.records.folder import read_history
from mixbench.records.identity import code_version
from mixbench.records.result import Analysis, Bound
from mixbench.report.figures import study_plots
from mixbench.report.tables import task_tables
from mixbench.runs.run import run
from mixbench.train.diagnostics import Diagnostics
from mixbench.train.objective import Tokens, Values, objective_of
from tests.support.owners import AbsoluteError, Bits, Telling

BITS = {"_target_": "tests.support.owners.Bits", "vocab_size": 8, "seq_len": 5, "rows": 9}


@pytest.fixture
def bits(settings):
    """Settings of a run on `Bits`."""

    def make(*overrides, **knobs):
        made = settings("steps=3", "batch_size=4", *overrides)
        model = {**made.model, "vocab_size": 8}
        names = {**made.names, "dataset": "bits"}
        return replace(made, dataset={**BITS, **knobs}, model=model, names=names)

    return make


def test_a_metric_can_need_scores(bits):
    """Bits a label, against the loss, which is the same mean in other units."""
    metrics = run(bits(), []).result.metrics
    for split in ("valid", "test"):
        assert metrics[f"{split}/bits"] == pytest.approx(metrics[f"{split}/loss"] / np.log(2))
        assert metrics[f"{split}/labels"] == 9 * 5 - 5
        assert 0 <= metrics[f"{split}/accuracy"] <= 1


def test_probes_are_read_after_training_and_by_no_run_that_chooses(bits):
    result = run(bits(probe_len=40), []).result
    assert result.probes.keys() == {"long", "same"}
    assert result.probes["long"]["labels"] == 3 * 40 - 2
    assert not [name for name in result.metrics if "long" in name]
    assert result.metrics == run(bits(), []).result.metrics
    assert run(bits("test=false", probe_len=40), []).result.probes == {}


def test_a_probe_that_cannot_be_run_costs_no_result(bits, monkeypatch):
    def broken(self, split, seed):
        if self.seq_len == 40:
            raise RuntimeError("no such rows")
        return generate(self, split, seed)

    generate = Bits.generate
    monkeypatch.setattr(Bits, "generate", broken)
    result = run(bits(probe_len=40), []).result
    assert result.status == "completed"
    assert result.probes["long"] is None
    assert result.probes["same"]["labels"] == 3 * 5 - 2


def test_what_a_task_says_of_a_run_is_on_its_record_and_in_the_report(bits, tmp_path):
    outcome = run(bits(probe_len=40), [])
    result = outcome.folder.read_result()
    bits_on_test = result.metrics["test/bits"]
    assert result.analysis == Analysis(
        title="what bits tell",
        values={"bits over two": bits_on_test / 2},
        note="halved",
        bound=Bound(state_size=[1.0, 2.0], score=[0.5, 0.25]),
        bound_note="No state is that good.",
    )
    assert run(bits("test=false", probe_len=40), []).result.analysis is None
    study = compare(collect([tmp_path])[0])
    (task,) = study.tasks
    (arm,) = task.arms
    assert arm.analysis == {"bits over two": bits_on_test / 2}
    assert arm.probes == {name: each["bits"] for name, each in result.probes.items()}
    tables = {table.title: table for table in task_tables(task)}
    assert tables["what bits tell"].note == "halved"
    assert tables["bits on further test sets, means over the evaluation seeds"].rows
    (plot,) = [each for each in study_plots(study) if each.slug == "state"]
    bound = [(mark.x, mark.y) for mark in plot.panels[0].marks if mark.kind == "information bound"]
    assert bound == [(1.0, 0.5), (2.0, 0.25)]
    assert "No state is that good." in plot.about


def test_an_analysis_that_fails_costs_no_result(bits, monkeypatch):
    monkeypatch.setattr(Bits, "analyse", lambda *_: 1 / 0)
    result = run(bits(), []).result
    assert (result.status, result.analysis) == ("completed", None)


def test_diagnostics_are_logged_by_epoch_and_kept(bits, tmp_path):
    outcome = run(bits("mixer=custom", "mixer._target_=tests.support.owners.Telling"), [])
    history = read_history(outcome.folder.history)
    assert all("diagnostics/mean_input" in row for row in history)
    last = {name: history[-1][f"diagnostics/{name}"] for name in ("mean_input", "max_input")}
    assert outcome.result.diagnostics == last
    assert last["max_input"] > abs(last["mean_input"])
    study = compare(collect([tmp_path])[0])
    (arm,) = study.tasks[0].arms
    assert arm.diagnostics == last
    assert "max-input" in {plot.slug for plot in study_plots(study)}


def test_a_mean_counts_rows_and_an_extreme_keeps_the_largest():
    model = nn.ModuleList([Telling(d_model=1, causal=True) for _ in range(2)])
    seen = Diagnostics()
    for rows, values in ((3, (1.0, 2.0)), (1, (5.0, 0.0))):
        for mixer, value in zip(model, values, strict=True):
            mixer.mean = mixer.largest = value
        seen.add(model, rows)
    assert seen.numbers() == {"mean_input": (3 * 1 + 3 * 2 + 5 + 0) / 8, "max_input": 5.0}


def test_objectives_say_what_counts():
    targets = torch.tensor([[-100, 3], [2, -100]])
    tokens, values = Tokens(), Values()
    assert tokens.counts(targets).tolist() == [[False, True], [True, False]]
    logits = torch.tensor([[0.0, 2.0], [1.0, 0.0]])
    assert tokens.predictions(logits).tolist() == [1, 0]
    assert values.counts(torch.zeros(3)).all()
    assert values.loss(torch.zeros(2), torch.tensor([1.0, 3.0])).item() == 5.0
    rows = Examples(np.zeros((2, 3)), np.zeros(2))
    inputs, aims = values.tensors(rows, torch.device("cpu"), torch.float32)
    assert inputs.dtype == aims.dtype == torch.float32


def test_an_objective_of_ones_own(settings, monkeypatch):
    """Named by its path; its code is part of the run's identity."""
    path = "tests.support.owners.AbsoluteError"
    before = code_version(settings("dataset=forecasting"))
    monkeypatch.setattr(Forecasting, "objective", path)
    made = settings("dataset=forecasting", "epochs=1")
    assert isinstance(objective_of(Forecasting()), AbsoluteError)
    with pytest.raises(SettingError, match=f"model: expected one for {path}"):
        run(made, [])
    monkeypatch.setattr(WindowRegressor, "objective", path)
    metrics = run(made, []).result.metrics
    assert metrics["valid/loss"] != metrics["valid/mse"]
    assert code_version(made) != before
