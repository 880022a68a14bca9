"""`hydra/sweeper=optuna`: what it learns from a run, and that it looks for the better one."""

from __future__ import annotations

import math
from importlib.util import find_spec

import pytest
import yaml
from msgspec.structs import replace
from omegaconf import OmegaConf

from mixbench.cli import run
from mixbench.core.errors import SettingError
from mixbench.records.folder import RunFolder
from tests.conftest import TINY, run_command
from tests.support.records import fabricate


@pytest.mark.parametrize(
    ("dataset", "direction", "wanted"),
    [
        ("mqar", "minimize", "maximize for accuracy"),
        ("forecasting", "maximize", "minimize for mse"),
    ],
)
def test_the_wrong_direction_is_refused(settings, dataset, direction, wanted):
    chosen = settings(f"dataset={dataset}")
    right = wanted.partition(" ")[0]
    run._check_direction(OmegaConf.create({"direction": right}), chosen)
    run._check_direction(OmegaConf.create({"direction": f"Direction.{right}"}), chosen)
    run._check_direction(OmegaConf.create({}), chosen)  # a sweeper that has no direction
    with pytest.raises(SettingError, match=f"expected {wanted}, got {direction}"):
        run._check_direction(OmegaConf.create({"direction": direction}), chosen)


@pytest.mark.parametrize(("higher", "worst"), [(True, -math.inf), (False, math.inf)])
def test_a_diverged_run_scores_worst(tmp_path, capfd, higher, worst):
    lost = RunFolder.at(fabricate(tmp_path, status="diverged")).read_result()
    lost = replace(lost, higher_is_better=higher, reason="step 3")
    assert run.report_to_optimizer(lost, ["lr=1e6"]) == worst
    assert capfd.readouterr().out == "lr=1e6  diverged: step 3\n"
    done = RunFolder.at(fabricate(tmp_path, seed=1, valid=0.25)).read_result()
    assert run.report_to_optimizer(replace(done, higher_is_better=higher), ["lr=1"]) == 0.25


def test_a_search_ends_with_the_best_and_goes_on_after_a_diverged_run(tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason="needs mixbench[optuna]")
    monkeypatch.chdir(tmp_path)
    search = ("hydra/sweeper=optuna", "hydra.sweeper.direction=maximize",
              "hydra.sweeper.n_trials=3", "hydra.sweeper.n_jobs=1", "lr=choice(1e-2,1e30)",
              "hydra.sweeper.sampler.seed=1")  # fmt: skip
    assert run_command("-m", *search, *TINY) == 0
    found = yaml.safe_load((tmp_path / "optimization_results.yaml").read_text())
    assert found["best_params"]["lr"] == 1e-2
    assert 0 <= found["best_value"] <= 1


def test_a_missing_package_is_one_line(capfd):
    if find_spec("optuna") is not None:
        pytest.skip("it is installed")
    assert run_command("-m", "hydra/sweeper=optuna", "lr=1e-3,1e-2") == 2
    err = capfd.readouterr().err
    assert "hydra/sweeper: expected one of basic, mixbench, got optuna" in err
    assert "pip install 'mixbench[optuna]'" in err
