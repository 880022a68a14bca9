"""What a comparison's description asks for, and every way in which it can be wrong."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from mixbench.config.comparison_schema import ArmSchema, ComparisonSchema, TaskSchema
from mixbench.core.errors import SettingError
from mixbench.core.overrides import as_override
from mixbench.sweeps.study import Study


def described(**changes):
    """A description of two arms with three trials each; dotted keys reach into the arms."""
    arms = {
        "attention": ArmSchema(mixer="attention", grid={"lr": [1e-3, 3e-3, 1e-2]}),
        "laplacian": ArmSchema(
            mixer="laplacian",
            inherit={"lr": "attention"},
            grid={"mixer": {"sigma": [0.35, 0.7, 1.4]}},
        ),
    }
    for name, arm in changes.pop("arms", {}).items():
        arms[name] = arm
    return asdict(
        ComparisonSchema(
            **{"idea": "laplacian", "baselines": ["attention"], "arms": arms, **changes}
        )
    )


def study(**changes):
    return Study("test", described(**changes), "forecasting")


def test_runs_of_both_stages():
    plan = study(tasks={"co2": TaskSchema(["dataset=forecasting", "dataset.series=co2"], 0.1)})
    task = plan.tasks["co2"]
    waves = list(plan.selection_stages())
    assert [[arm.name for arm in wave] for wave in waves] == [["attention"], ["laplacian"]]
    first = plan.selection_runs(task, waves[0][0], {})
    assert [(run.trial, run.seed) for run in first] == [(t, s) for t in range(3) for s in range(4)]
    assert first[4].overrides == (
        "dataset=forecasting",
        "dataset.series=co2",
        "mixer=attention",
        "lr=0.003",
        "seed=0",
        "test=false",
    )
    second = plan.selection_runs(task, waves[1][0], {"attention": {"lr": 1e-2}})
    assert second[0].values == {"lr": 1e-2, "mixer.sigma": 0.35}
    assert second[0].overrides[2:5] == ("mixer=laplacian", "lr=0.01", "mixer.sigma=0.35")
    judged = plan.evaluation_runs(task, plan.arms["attention"], 1, {"lr": 3e-3})
    assert [run.seed for run in judged] == list(range(1000, 1008))
    assert {run.overrides[-1] for run in judged} == {"test=true"}
    assert plan.numbers() == {"selection": 24, "evaluation": 16, "ablation": 0}


def test_more_evaluation_seeds_keep_the_old_ones():
    assert study(eval_seeds=16).eval_seeds[:8] == study(eval_seeds=8).eval_seeds
    assert study(eval_seeds=[7, 9]).eval_seeds == [7, 9]


def test_ablations_change_the_chosen_configuration():
    plan = study(ablations={"narrow": ["mixer.num_heads=1"]}, ablation_seeds=2)
    runs = plan.ablation_runs(plan.tasks["forecasting"], plan.arms["laplacian"], {"lr": 1e-2})
    assert [run.seed for run in runs] == [1000, 1001]
    assert runs[0].overrides == (
        "mixer=laplacian",
        "lr=0.01",
        "mixer.num_heads=1",
        "seed=1000",
        "test=true",
    )


def test_equal_budgets_are_the_rule():
    unequal = {"attention": ArmSchema(mixer="attention", grid={"lr": [1e-3, 3e-3]})}
    with pytest.raises(SettingError, match=r"attention: 2, laplacian: 3"):
        study(arms=unequal)
    assert study(arms=unequal, unequal_budget="allow").unequal_budget
    assert not study(unequal_budget="allow").unequal_budget


def test_what_the_description_decides():
    plan = study(tasks={"co2": TaskSchema(["dataset=forecasting", "+steps=5"])})
    assert plan.fixed_keys() == {
        "mixer", "mixer._target_", "seed", "test", "dataset", "steps", "lr", "mixer.sigma",
    }  # fmt: skip


ARM = ArmSchema
WRONG = [
    ({"idea": "laplacien"}, "sweep.idea", "did you mean 'laplacian'"),
    ({"idea": ""}, "sweep.idea", "got nothing"),
    ({"baselines": []}, "sweep.baselines", "got nothing"),
    ({"baselines": ["laplacian"]}, "sweep.baselines", "other arms than the idea"),
    ({"idea": 3}, "sweep.idea", "an arm, or a list of arms"),
    ({"idea": None}, "sweep.idea", "an arm, or a list of arms"),
    ({"idea": ["laplacian", "laplacian"]}, "sweep.idea", "different arms"),
    ({"baselines": ["attention", "attention"]}, "sweep.baselines", "different arms"),
    (
        {"arms": {"laplacian": ARM("laplacian", ["mixer=local"])}},
        "sweep.arms.laplacian.overrides",
        "got mixer",
    ),
    (
        {"arms": {"laplacian": ARM("laplacian", ["+dataset.seq_len=8"])}},
        "sweep.arms.laplacian.overrides",
        "got dataset.seq_len",
    ),
    (
        {"arms": {"laplacian": ARM("laplacian", ["dataset/preset=x"])}},
        "sweep.arms.laplacian.overrides",
        "got dataset/preset",
    ),
    (
        {"arms": {"laplacian": ARM("laplacian", grid={"batch_size": [8, 16, 32]})}},
        "sweep.arms.laplacian.grid",
        "got batch_size",
    ),
    (
        {"arms": {"laplacian": ARM("laplacian", grid={"seed": [1, 2, 3]})}},
        "sweep.arms.laplacian.grid",
        "got seed",
    ),
    ({"tasks": {"x": TaskSchema(["mixer=local"])}}, "sweep.tasks.x", "got mixer"),
    ({"ablations": {"x": ["seed=1"]}}, "sweep.ablations.x", "got seed"),
    ({"selection_seeds": 0}, "sweep.selection_seeds", "at least 1"),
    ({"eval_seeds": "8"}, "sweep.eval_seeds", "a number of seeds"),
    ({"eval_seeds": [1, 1]}, "sweep.eval_seeds", "different ones"),
    ({"eval_seeds": [3, 9]}, "sweep.eval_seeds", "not among sweep.selection_seeds, got 3"),
    ({"eval_seeds": True}, "sweep.eval_seeds", "a number of seeds"),
    ({"margin": -1.0}, "sweep.margin", "at least 0"),
    ({"unequal_budget": "yes"}, "sweep.unequal_budget", "refuse or allow"),
    ({"ablation_seeds": 9}, "sweep.ablation_seeds", "1 to 8"),
    ({"tasks": {"x": TaskSchema([], -1.0)}}, "sweep.tasks.x.margin", "at least 0"),
    ({"arms": {"laplacian": ARM()}}, "sweep.arms.laplacian.mixer", "got nothing"),
    (
        {"arms": {"laplacian": ARM("laplacian", grid={"lr": 3})}},
        "sweep.arms.laplacian.grid.lr",
        "a list of values",
    ),
    (
        {"arms": {"laplacian": ARM("laplacian", grid={"lr": [1, 1, 2]})}},
        "sweep.arms.laplacian.grid.lr",
        "different values",
    ),
    (
        {"arms": {"laplacian": ARM("laplacian", inherit={"lr": "attentoin"})}},
        "sweep.arms.laplacian.inherit.lr",
        "did you mean 'attention'",
    ),
    (
        {"arms": {"laplacian": ARM("laplacian", inherit={"mixer": {"x": "attention"}})}},
        "sweep.arms.laplacian.inherit.mixer.x",
        "an arm whose grid has mixer.x",
    ),
    (
        {"arms": {"laplacian": ARM("x", grid={"lr": [1, 2, 3]}, inherit={"lr": "attention"})}},
        "sweep.arms.laplacian.inherit.lr",
        "one in both",
    ),
    (
        {
            "arms": {
                "attention": ARM("attention", inherit={"lr": "laplacian"}),
                "laplacian": ARM("laplacian", inherit={"lr": "attention"}),
            }
        },
        "sweep.arms",
        "circle",
    ),
]


def test_an_unknown_key_is_refused():
    with pytest.raises(SettingError, match="did you mean 'eval_seeds'"):
        Study("test", described() | {"eval_seed": 3}, "forecasting")


@pytest.mark.parametrize(("changes", "key", "says"), WRONG)
def test_a_wrong_description_names_its_key(changes, key, says):
    with pytest.raises(SettingError) as caught:
        study(**changes)
    assert caught.value.key == key
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        1,
        0.0015,
        1e-30,
        True,
        None,
        "plain",
        "two words",
        "it's",
        "a,b",
        "",
        [1, None, "x y"],
        "null",
        "True",
        "inf",
        "NaN",
        "1e3",
    ],
)
def test_values_survive_hydras_grammar(value):
    (override,) = OverridesParser.create().parse_overrides([f"key={as_override(value)}"])
    assert override.value() == value
    assert not override.is_sweep_override()
