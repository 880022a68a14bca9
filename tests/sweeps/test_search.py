"""Random search: what is drawn, where edges lie, and that budgets stay equal beyond them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from mixbench.compare.planned import sweep_study
from mixbench.config.comparison_schema import ArmSchema
from mixbench.core import seeds
from mixbench.core.errors import SettingError
from mixbench.sweeps.search import Range, draw, edges, extended, space
from tests.conftest import run_command
from tests.support import fake_task
from tests.sweeps.test_study import study

LR = Range(1e-4, 1e-1)


def test_a_range_is_even_in_its_logarithm():
    rng = seeds.stream(0, "test")
    drawn = np.array([LR.draw(rng) for _ in range(4000)])
    assert drawn.min() >= 1e-4
    assert drawn.max() <= 1e-1
    for decade in range(3):
        low = 1e-4 * 10**decade
        assert np.mean((drawn >= low) & (drawn < 10 * low)) == pytest.approx(1 / 3, abs=0.03)
    even = np.array([Range(0.0, 2.0, log=False).draw(rng) for _ in range(4000)])
    assert even.mean() == pytest.approx(1.0, abs=0.05)
    whole = [Range(1, 4, log=False).draw(rng) for _ in range(400)]
    assert sorted(set(whole)) == [1, 2, 3, 4]
    assert all(type(number) is int for number in [*whole, Range(1, 64).draw(rng)])


@pytest.mark.parametrize(
    ("value", "edge"),
    [(1e-4, "low"), (1.9e-4, "low"), (2.1e-4, None), (4e-2, None), (6e-2, "high"), (0.1, "high")],
)
def test_an_edge_is_the_outermost_tenth(value, edge):
    assert LR.edge(value) == edge


def test_an_extension_goes_a_third_further():
    assert LR.beyond("high") == Range(0.1, 1.0)  # a decade beyond three
    assert LR.beyond("low") == Range(1e-5, 1e-4)
    assert Range(0.0, 3.0, log=False).beyond("low") == Range(-1.0, 0.0, log=False)
    assert Range(1, 8).beyond("low") is None  # whole numbers end at 1, in the logarithm
    drawn_from, widened = extended({"lr": LR, "kind": ("a", "b")}, {"lr": "high"})
    assert drawn_from == {"lr": Range(0.1, 1.0), "kind": ("a", "b")}
    assert widened["lr"] == Range(1e-4, 1.0)


def test_draws_are_the_same_for_a_knob_in_every_arm_and_differ_by_seed():
    one = draw("x", {"lr": LR}, 5, seed=0, stage=0)
    two = draw("y", {"mixer.gain": LR, "lr": LR}, 5, seed=0, stage=0)
    assert [trial["lr"] for trial in one] == [trial["lr"] for trial in two]
    assert one == draw("x", {"lr": LR}, 5, seed=0, stage=0)
    assert one != draw("x", {"lr": LR}, 5, seed=1, stage=0)
    assert draw("x", {"lr": LR}, 8, seed=0, stage=0)[:5] == one
    assert len({trial["lr"] for trial in draw("x", {"lr": LR}, 50, 0, 0)}) == 50


def test_no_trial_is_drawn_twice():
    few = {"mixer.kind": ("a", "b", "c")}
    first = draw("x", few, 2, seed=0, stage=0)
    (third,) = draw("x", few, 1, seed=0, stage=1, drawn=first)
    assert third not in first
    with pytest.raises(SettingError, match="x: expected a space with at least 4 different trials"):
        draw("x", few, 4, seed=0, stage=0)


def test_edges_of_chosen_values():
    ranges = {"lr": LR, "mixer.kind": ("a", "b"), "mixer.gain": Range(0.0, 1.0, log=False)}
    assert edges(ranges, {"lr": 0.09, "mixer.kind": "a", "mixer.gain": 0.5}) == {"lr": "high"}
    assert edges(ranges, {}) == {}


@pytest.mark.parametrize(
    ("node", "key", "says"),
    [
        ({"lr": 3}, "p.lr", "a range"),
        ({"lr": []}, "p.lr", "a range"),
        ({"lr": {}}, "p.lr", "a range"),
        ({"mixer": {"gain": {"low": 1}}}, "p.mixer.gain.high", "a number"),
        ({"lr": {"low": 1, "high": 1}}, "p.lr.high", "more than low=1"),
        ({"lr": {"low": 0, "high": 1}}, "p.lr.low", "log: false draws evenly"),
        ({"lr": {"low": 1, "high": math.inf}}, "p.lr.high", "a number"),
        ({"lr": {"low": 1, "high": 2, "step": 1}}, "p.lr.step", "low, high or log"),
        ({"lr": {"low": 1, "high": 2, "log": "yes"}}, "p.lr.log", "true or false"),
    ],
)
def test_a_wrong_space_is_named(node, key, says):
    with pytest.raises(SettingError) as raised:
        space("p", node)
    assert raised.value.key == key
    assert says in str(raised.value)


def random_study(arms=None, **changes):
    ranged = {"low": 1e-4, "high": 1e-1}
    both = {
        "attention": ArmSchema(mixer="attention", space={"lr": ranged}),
        "laplacian": ArmSchema(
            mixer="laplacian", space={"lr": ranged, "mixer": {"sigma": {"low": 0.1, "high": 3.0}}}
        ),
    }
    return study(**{"search": "random", "trials": 6, "arms": both | (arms or {}), **changes})


def test_every_arm_of_a_random_search_has_its_trials():
    plan = random_study()
    assert {name: len(arm.trials) for name, arm in plan.arms.items()} == {
        "attention": 6, "laplacian": 6
    }  # fmt: skip
    assert plan.numbers()["selection"] == 48
    assert plan.arms["laplacian"].searched == ["lr", "mixer.sigma"]
    assert {"lr", "mixer.sigma"} <= plan.fixed_keys()


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"search": "rondom"}, "sweep.search"),
        ({"trials": None}, "sweep.trials"),
        ({"trials": 0}, "sweep.trials"),
        ({"search": "grid"}, "sweep.trials"),
        ({"search": "grid", "trials": None}, "sweep.arms.attention.space"),
        ({"extensions": -1}, "sweep.extensions"),
        ({"arms": {"attention": ArmSchema("attention", grid={"lr": [1, 2]})}},
         "sweep.arms.attention.grid"),
        ({"arms": {"laplacian": ArmSchema("laplacian", inherit={"lr": "attention"})}},
         "sweep.arms.laplacian.inherit"),
        ({"arms": {"attention": ArmSchema("attention", space={"seed": [1, 2]})}, "trials": 2},
         "sweep.arms.attention.space"),
    ],
)  # fmt: skip
def test_a_wrong_random_search_is_named(changes, key):
    with pytest.raises(SettingError) as raised:
        random_study(**changes)
    assert raised.value.key == key


def test_a_search_goes_beyond_its_edge_and_all_arms_get_the_same(tmp_path, monkeypatch, capfd):
    """The best rate lies above the range: both arms get two more trials, twice, and one is told."""
    for name, text in fake_task.CONF.items():
        path = tmp_path / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "conf" / "sweep" / "searched.yaml").write_text("""
# @package _global_
# A random search whose best rate lies beyond its range.
defaults:
  - override /dataset: first_token
epochs: 3
sweep:
  idea: first
  baselines: [plain]
  search: random
  trials: 4
  arms:
    plain: {mixer: plain, space: {lr: {low: 5e-4, high: 3e-3}}}
    first: {mixer: first, space: {lr: {low: 5e-4, high: 3e-3}}}
  selection_seeds: 1
  eval_seeds: 2
  extensions: 1
hydra:
  mode: MULTIRUN
""")
    monkeypatch.chdir(tmp_path)
    own = ("--config-dir", str(tmp_path / "conf"), "sweep=searched")
    assert run_command(*own, "sweep.preview=true") == 0
    said = "12 runs (8 selection, 4 evaluation; up to 4 more beyond edges)"
    assert said in " ".join(capfd.readouterr().out.split())
    assert run_command(*own) == 0
    (folder,) = (tmp_path / "outputs" / "sweeps").glob("searched-*")
    found = sweep_study(folder).tasks["first_token"].arms
    assert {name: len(arm.trials) for name, arm in found.items()} == {"plain": 6, "first": 6}
    beyond = [trial.values["lr"] for trial in found["first"].trials[4:]]
    assert all(3e-3 <= lr <= 3e-3 * 6 ** (1 / 3) * 1.001 for lr in beyond)
    assert all(5e-4 <= trial.values["lr"] <= 3e-3 for trial in found["first"].trials[:4])
    content = json.loads((folder / "sweep.json").read_text())
    assert content["study"]["search"] == "random"
    report = json.loads((folder / "report.json").read_text())
    task = report["studies"][0]["tasks"][0]
    assert {arm["name"]: len(arm["trials"]) for arm in task["arms"]} == {"plain": 6, "first": 6}
    assert "random search on first_token: trials plain 6, first 6" in json.dumps(report)
    records = len(list((tmp_path / "outputs" / "runs").iterdir()))
    assert run_command(*own) == 0  # the same draws: nothing is trained again
    assert len(list((tmp_path / "outputs" / "runs").iterdir())) == records == 16
