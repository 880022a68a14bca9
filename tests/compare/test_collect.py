"""Plain runs become a study: what is inferred, what is said, what is refused."""

from __future__ import annotations

import json

import pytest

from mixbench.compare.collect import collect
from mixbench.compare.compare import compare
from mixbench.compare.content import ArmSeconds, Gap
from mixbench.core.errors import SettingError
from tests.support.records import fabricate


def report(path, **roles):
    (study,) = collect([path], **roles)
    return compare(study)


def arms(study):
    (task,) = study.tasks
    return {arm.name: arm for arm in task.arms}


def grid(outputs, seeds=range(6)):
    """Attention and laplacian at two rates; laplacian is better by a tenth at the better rate."""
    for seed in seeds:
        for lr, drop in ((1e-3, 0.2), (1e-2, 0.0)):
            base = 0.5 + 0.01 * seed - drop
            fabricate(outputs, "attention", seed, base, base - 0.02, lr=lr)
            fabricate(outputs, "laplacian", seed, base + 0.1, base + 0.08 + 0.001 * seed, lr=lr)


def test_arms_trials_and_pairs_of_plain_runs(tmp_path):
    grid(tmp_path)
    study = report(tmp_path)
    assert study.baselines == ["attention"]
    assert study.ideas == ["laplacian"]
    assert [t.values for t in arms(study)["attention"].trials] == [{"lr": 1e-3}, {"lr": 1e-2}]
    assert arms(study)["attention"].chosen == 1
    assert arms(study)["laplacian"].on_edge == ["lr"]
    (comparison,) = study.tasks[0].comparisons
    assert comparison.statistics.d == pytest.approx(0.1025)
    assert comparison.outcome == "beats"
    assert comparison.statistics.p == pytest.approx(2**-6)
    assert arms(study)["laplacian"].seconds == ArmSeconds(total=18.0, mean=1.5)
    notes = " ".join(study.notes)
    assert "the baseline is attention" in notes
    assert "the seeds that chose a configuration also judge it" in notes
    headline = study.tasks[0].verdicts[0].headline
    assert headline.startswith("laplacian vs attention: mechanism not stated, beats tuned baseline")


def test_roles_can_be_given(tmp_path):
    grid(tmp_path)
    study = report(tmp_path, baseline="laplacian", idea="attention")
    (comparison,) = study.tasks[0].comparisons
    assert comparison.statistics.d == pytest.approx(-0.1025)
    assert (comparison.outcome, comparison.qualifiers) == ("not beaten", ["worse"])
    with pytest.raises(SettingError, match="did you mean 'attention'"):
        report(tmp_path, baseline="atention")


def test_the_test_metric_has_no_part_in_the_choice(tmp_path):
    for seed in range(3):
        fabricate(tmp_path, "attention", seed, valid=0.5, test=0.9, lr=1e-3)
        fabricate(tmp_path, "attention", seed, valid=0.6, test=0.1, lr=1e-2)
    (arm,) = arms(report(tmp_path)).values()
    assert arm.evaluated == {"lr": 1e-2}
    assert arm.test.mean == pytest.approx(0.1)


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_a_lost_run_makes_its_trial_the_worst(tmp_path, status):
    for seed in range(3):
        fabricate(tmp_path, "attention", seed, valid=0.3, lr=1e-3)
        fabricate(
            tmp_path, "attention", seed, 0.9, lr=1e-2, status=status if seed == 1 else "completed"
        )
    (arm,) = arms(report(tmp_path)).values()
    assert arm.evaluated == {"lr": 1e-3}
    assert [trial.mean for trial in arm.trials] == [pytest.approx(0.3), None]
    assert [run.status for run in arm.lost] == [status]
    assert arm.budget == [None, pytest.approx(0.3)]


def test_a_diverged_evaluation_run_counts_with_the_worst_score(tmp_path):
    for seed in range(4):
        fabricate(tmp_path, "attention", seed, 0.5, 0.5)
        lost = seed == 2
        fabricate(tmp_path, "laplacian", seed, 0.9, 0.9, status="diverged" if lost else "completed")
    (comparison,) = report(tmp_path).tasks[0].comparisons
    assert [pair.idea for pair in comparison.pairs] == [0.9, 0.9, 0.125, 0.9]
    assert comparison.gaps == []


def test_a_pair_without_a_side_is_refused_with_its_command(tmp_path):
    for seed in range(4):
        fabricate(tmp_path, "attention", seed, 0.5, 0.5)
        if seed != 2:
            failed = seed == 3
            fabricate(tmp_path, "laplacian", seed, status="failed" if failed else "completed")
    (comparison,) = report(tmp_path).tasks[0].comparisons
    assert comparison.outcome == "incomplete"
    assert comparison.statistics is None
    assert comparison.gaps == [
        Gap(arm="laplacian", seed=2, status="missing"),
        Gap(arm="laplacian", seed=3, status="failed"),
    ]
    assert comparison.commands == [
        "mixbench mixer=laplacian lr=0.001 seed=2",
        "mixbench mixer=laplacian lr=0.001 seed=3 rerun=failed",
    ]


def test_the_command_names_the_users_own_configuration(tmp_path):
    fabricate(tmp_path, "attention", 1)
    fabricate(tmp_path, "laplacian", 0, own_conf=True)
    fabricate(tmp_path, "laplacian", 1, own_conf=True)
    (comparison,) = report(tmp_path).tasks[0].comparisons
    assert comparison.commands == ["mixbench mixer=attention lr=0.001 seed=0"]
    fabricate(tmp_path, "attention", 2)
    (comparison,) = report(tmp_path).tasks[0].comparisons
    assert comparison.commands == [
        "mixbench mixer=attention lr=0.001 seed=0",
        "mixbench --config-dir '/home/me/my conf' mixer=laplacian lr=0.001 seed=2",
    ]


def test_only_seeds_that_all_trials_ran_choose(tmp_path):
    for seed in range(3):
        fabricate(tmp_path, "attention", seed, valid=0.3, lr=1e-3)
    fabricate(tmp_path, "attention", 0, valid=0.9, lr=1e-2)
    study = report(tmp_path)
    (arm,) = arms(study).values()
    assert arm.evaluated == {"lr": 1e-2}
    assert "mqar, attention: trials differ in their seeds, only seeds 0 choose" in study.notes
    assert [trial.mean for trial in arm.trials] == [pytest.approx(0.3), 0.9]


def test_trials_without_a_common_seed_choose_nothing(tmp_path):
    fabricate(tmp_path, "attention", 0, lr=1e-3)
    fabricate(tmp_path, "attention", 1, lr=1e-2)
    fabricate(tmp_path, "local", 0)
    study = report(tmp_path)
    assert "mqar, attention: trials differ in their seeds, nothing can be chosen" in study.notes
    assert arms(study)["attention"].evaluated is None
    assert study.tasks[0].comparisons[0].outcome == "incomplete"


def test_runs_without_a_test_split_select_and_the_others_judge(tmp_path):
    for lr, valid in ((1e-3, 0.3), (1e-2, 0.6)):
        fabricate(tmp_path, "attention", 0, valid, lr=lr, reads_test=False)
    for seed in (1000, 1001):
        fabricate(tmp_path, "attention", seed, 0.1, 0.7, lr=1e-2)
    study = report(tmp_path)
    (arm,) = arms(study).values()
    assert arm.evaluated == {"lr": 1e-2}
    assert [run.seed for run in arm.evaluation] == [1000, 1001]
    assert not [note for note in study.notes if "also judge" in note]


def test_selection_and_evaluation_on_the_same_seeds_is_said(tmp_path):
    for lr, valid in ((1e-3, 0.3), (1e-2, 0.6)):
        fabricate(tmp_path, "attention", 0, valid, lr=lr, reads_test=False)
    fabricate(tmp_path, "attention", 0, 0.6, 0.7, lr=1e-2)
    assert [note for note in report(tmp_path).notes if "also judge" in note]


def test_arms_that_differ_in_more_than_their_mixer_are_said(tmp_path):
    fabricate(tmp_path, "attention", steps=2, lr=1e-3)
    fabricate(tmp_path, "attention", steps=2, lr=1e-2)
    fabricate(tmp_path, "local", steps=6, lr=1e-3)
    notes = report(tmp_path).notes
    assert "mqar: arms also differ in steps: local 6, attention 2" in notes
    assert not [note for note in notes if "differ in lr" in note]


@pytest.mark.parametrize("name", ["idea", "attention"])
def test_two_mixers_of_one_name_leave_attention_the_baseline(tmp_path, name):
    """In all tasks, under their classes' paths in each."""
    for seed in range(2):
        for target in ("ideas.A", "ideas.B"):
            knobs = {"_target_": target}
            fabricate(tmp_path, name, seed, knobs=knobs)
        fabricate(tmp_path, "attention", seed)
        for mixer in ("attention", "laplacian"):
            fabricate(tmp_path, mixer, seed, dataset={"num_pairs": 2})
    study = report(tmp_path)
    found = [[(each.idea, each.baseline) for each in task.comparisons] for task in study.tasks]
    ideas = [("ideas.A", "attention"), ("ideas.B", "attention")]
    assert sorted(found, key=len) == [[("laplacian", "attention")], ideas]


def test_arms_of_different_code_are_said(tmp_path):
    """Of what they share: a mixer's own code is always another."""
    fabricate(tmp_path, "attention")
    path = fabricate(tmp_path, "local") / "result.json"
    result = json.loads(path.read_text())
    result["code_version"] = "0ther"
    path.write_text(json.dumps(result))
    notes = report(tmp_path).notes
    assert "mqar: arms also differ in code: local 0ther, attention c0de" in notes


def test_a_lost_run_makes_no_other_verdict_easier(tmp_path):
    """Five seeds of one better task: p = 1/32 alone, but three comparisons were asked for."""
    for pairs in (2, 4, 8):
        for seed in range(5):
            data = {"num_pairs": pairs}
            fabricate(tmp_path, "attention", seed, 0.5, 0.5, dataset=data)
            lost = pairs > 2 and seed == 0
            status = "failed" if lost else "completed"
            fabricate(tmp_path, "local", seed, 0.5, 0.9, dataset=data, status=status)
    first, second, third = (t.comparisons[0] for t in report(tmp_path).tasks)
    assert first.statistics.p_adjusted == pytest.approx(3 / 32)
    assert first.outcome != "beats"
    assert second.outcome == third.outcome == "incomplete"


def test_an_idea_that_diverges_beats_nothing(tmp_path):
    for seed in range(8):
        fabricate(tmp_path, "attention", seed, 0.5, 0.13)
        fabricate(tmp_path, "local", seed, 0.5, 0.9, status="diverged" if not seed else "completed")
    study = report(tmp_path)
    (comparison,) = study.tasks[0].comparisons
    assert comparison.statistics.p_adjusted <= 0.05
    assert comparison.diverged == {"local": 1, "attention": 0}
    assert comparison.outcome == "inconclusive"
    headline = study.tasks[0].verdicts[0].headline
    assert "local diverged at 1; an arm with diverged runs cannot win" in headline


def test_one_seed_gets_no_advice(tmp_path):
    for mixer in ("attention", "local"):
        fabricate(tmp_path, mixer)
    headline = report(tmp_path).tasks[0].verdicts[0].headline
    assert headline.endswith("1 seeds; cannot estimate variance from one seed)")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"status": "completed"}', '"x"', "[" * 100_000, " " * (2**26 + 1)]
)
def test_a_result_that_cannot_be_read_is_named_and_left_out(tmp_path, text):
    fabricate(tmp_path)
    broken = fabricate(tmp_path, seed=1)
    (broken / "result.json").write_text(text)
    study = report(tmp_path)
    assert study.environment.runs == {"completed": 1}
    assert f"results that cannot be read, left out: {broken.name}" in study.notes


@pytest.mark.parametrize(
    "text", ["", "garbage", "step,valid/accuracy\n1,x\n", "step,valid/accuracy\n1\n", '"\n"a"b\n']
)
def test_a_damaged_history_costs_its_curve_only(tmp_path, text):
    folder = fabricate(tmp_path)
    before = arms(report(tmp_path))["attention"].test
    (folder / "history.csv").write_text(text)
    study = report(tmp_path)
    assert arms(study)["attention"].test == before
    assert [run.history for run in arms(study)["attention"].evaluation] == [[]]


def test_records_from_before_there_was_a_choice_are_read(tmp_path):
    path = fabricate(tmp_path) / "result.json"
    result = json.loads(path.read_text())
    del result["ceiling"], result["config"]["test"]
    path.write_text(json.dumps(result))
    assert arms(report(tmp_path))["attention"].test.mean == 0.5


@pytest.mark.parametrize("text", ["", "[]", '{"runs": 3}', '{"kind": "comparison", "runs": []}'])
def test_a_foreign_sweep_is_left_out(tmp_path, text):
    fabricate(tmp_path)
    (tmp_path / "sweeps" / "x").mkdir(parents=True)
    (tmp_path / "sweeps" / "x" / "sweep.json").write_text(text)
    assert len(report(tmp_path).tasks) == 1


def test_knobs_that_only_some_datasets_have(tmp_path):
    fabricate(tmp_path, dataset={"options": {"a": 1}})
    fabricate(tmp_path, dataset={"options": {"a": 2}, "growth": 0.5})
    fabricate(tmp_path)
    names = [task.name for task in report(tmp_path).tasks]
    assert len(set(names)) == 3
    assert "mqar, growth=0.5, options.a=2" in names


def test_roles_that_leave_one_empty_are_refused(tmp_path):
    grid(tmp_path, seeds=[0])
    with pytest.raises(SettingError, match="another arm than the baseline"):
        report(tmp_path, idea="attention")
    planned(tmp_path / "p")
    with pytest.raises(SettingError, match="give both --idea and --baseline"):
        report(tmp_path / "p", idea="attention")
    assert report(tmp_path / "p", idea="attention", baseline="laplacian").ideas == ["attention"]


def test_a_path_by_two_ways_counts_once(tmp_path):
    fabricate(tmp_path)
    (study,) = collect([tmp_path, tmp_path / "runs" / ".." / "runs"])
    assert not [note for note in study.notes if "older" in note]


def test_of_equal_settings_the_newest_record_counts(tmp_path):
    fabricate(tmp_path, test=0.1, started="2026-01-01T00:00:00+00:00")
    fabricate(tmp_path, test=0.9, started="2026-01-02T00:00:00+00:00")
    study = report(tmp_path)
    (arm,) = arms(study).values()
    assert arm.test.mean == 0.9
    assert [note for note in study.notes if note.startswith("1 older records")]


def test_every_dataset_configuration_is_a_task(tmp_path):
    for pairs in (4, 8):
        for mixer in ("attention", "lattice"):
            fabricate(tmp_path, mixer, dataset={"num_pairs": pairs, "power": 0.01})
    study = report(tmp_path)
    assert [task.name for task in study.tasks] == ["mqar, num_pairs=4", "mqar, num_pairs=8"]
    assert all(len(task.comparisons) == 1 for task in study.tasks)


def test_unequal_budgets_and_unfinished_runs_are_said(tmp_path):
    fabricate(tmp_path, "attention", lr=1e-3)
    fabricate(tmp_path, "attention", lr=1e-2)
    folder = fabricate(tmp_path, "laplacian", lr=1e-2)
    unfinished = fabricate(tmp_path, "laplacian", seed=1)
    (unfinished / "result.json").unlink()
    (unfinished / "run.log").write_text("")
    notes = report(tmp_path).notes
    assert "unequal budgets on mqar: trials attention 2, laplacian 1" in notes
    assert "1 runs have no result: unfinished or interrupted" in notes
    assert compare(collect([folder])[0]).tasks[0].arms[0].name == "laplacian"


def test_a_signature_that_fails_refutes_the_mechanism(tmp_path):
    def signature(holds):
        check = {"name": "moon is cheese", "predicted": 1, "observed": 0.2, "layer": 0}
        return {
            "holds": holds,
            "held": int(holds),
            "of": 1,
            "failing": [] if holds else ["moon is cheese"],
            "checks": [{**check, "holds": holds, "tolerance": None}],
        }

    for seed in range(4):
        fabricate(tmp_path, "attention", seed)
        fabricate(tmp_path, "laplacian", seed, signature=signature(seed != 2))
    study = report(tmp_path)
    headline = study.tasks[0].verdicts[0].headline
    assert "mechanism refuted (moon is cheese)" in headline
    (laplacian,) = [a for a in study.tasks[0].arms if a.name == "laplacian"]
    assert laplacian.signature.failing == {"moon is cheese": 1}
    assert laplacian.signature.checks[0].holds_in == 3


def test_the_strongest_baseline_is_the_best_on_validation(tmp_path):
    for seed in range(4):
        fabricate(tmp_path, "attention", seed, valid=0.8, test=0.1)
        fabricate(tmp_path, "local", seed, valid=0.2, test=0.9)
        fabricate(tmp_path, "lattice", seed, valid=0.9, test=0.5)
    (study,) = collect([tmp_path])
    study.baselines, study.ideas = ["local", "attention"], ["lattice"]
    compared = compare(study)
    assert compared.tasks[0].strongest_baseline == "attention"
    assert compared.tasks[0].verdicts[0].baseline == "attention"


def planned(outputs, *, redone=False):
    """A sweep folder: attention tried two rates, laplacian one; one run is missing."""
    runs = []

    def add(arm, role, trial, values, seed, valid, **more):
        judged = role == "evaluation"
        folder = fabricate(outputs, arm, seed, valid, 0.5, reads_test=judged, **values, **more)
        record = f"../../runs/{folder.name}"
        runs.append(
            {"task": "mqar", "arm": arm, "role": role, "trial": trial, "ablation": None,
             "values": values, "seed": seed, "overrides": [], "record": record}
        )  # fmt: skip

    add("attention", "selection", 0, {"lr": 1e-3}, 0, 0.9 if redone else 0.4)
    add("attention", "selection", 1, {"lr": 1e-2}, 0, 0.6)
    add("laplacian", "selection", 0, {"lr": 1e-2}, 0, 0.7)
    for seed in (1000, 1001):
        add("attention", "evaluation", 1, {"lr": 1e-2}, seed, 0.6)
    add("laplacian", "evaluation", 0, {"lr": 1e-2}, 1000, 0.7)
    runs.append({**runs[-1], "seed": 1001, "record": "../../runs/gone"})
    folder = outputs / "sweeps" / "s"
    folder.mkdir(parents=True)
    description = {
        "title": "T", "ideas": ["laplacian"], "baselines": ["attention"], "tasks": {"mqar": 0.02},
        "arms": {"attention": {}, "laplacian": {"lr": "attention"}},
        "trials": {"attention": 2, "laplacian": 1}, "unequal_budget": True, "ablations": {},
        "published": "it wins", "source": None,
    }  # fmt: skip
    content = {
        "kind": "comparison", "name": "s", "command": "mixbench sweep=s", "study": description,
        "stage": "evaluation", "started": "2026", "wall_seconds": 3.0, "runs": runs,
    }  # fmt: skip
    (folder / "sweep.json").write_text(json.dumps(content))
    return folder


def test_an_unfinished_sweep_says_what_is_missing_and_how_to_go_on(tmp_path):
    study = report(planned(tmp_path))
    assert study.stage == "evaluation"
    assert study.notes == ["unequal budgets, as the sweep allows: trials attention 2, laplacian 1"]
    (task,) = study.tasks
    assert task.margin == 0.02
    (comparison,) = task.comparisons
    assert comparison.gaps == [Gap(arm="laplacian", seed=1001, status="missing")]
    assert comparison.commands == ["mixbench sweep=s rerun=failed"]
    assert "no verdict (1 runs missing or failed)" in task.verdicts[0].headline


def test_a_whole_folder_is_the_sweep_and_what_is_not_in_it(tmp_path):
    planned(tmp_path)
    fabricate(tmp_path, "lattice", 5)
    studies = collect([tmp_path])
    assert [study.name for study in studies] == ["s", "runs"]
    assert list(studies[1].tasks["mqar"].arms) == ["lattice"]


def test_a_choice_that_a_redone_run_changed_is_said(tmp_path):
    notes = report(planned(tmp_path, redone=True)).notes
    assert len(notes) == 2
    assert notes[1].startswith("mqar, attention: a selection run was redone since")


def test_paths_that_hold_nothing_are_refused(tmp_path):
    with pytest.raises(SettingError, match="a path that exists"):
        collect([tmp_path / "nowhere"])
    with pytest.raises(SettingError, match="run records or sweeps"):
        collect([tmp_path])


def test_a_sweep_cannot_lead_out_of_its_own_folder(tmp_path):
    inside = fabricate(tmp_path / "outputs")
    outside = fabricate(tmp_path / "elsewhere", seed=1)
    sweep = tmp_path / "outputs" / "sweeps" / "grid"
    sweep.mkdir(parents=True)
    runs = [{"record": str(inside)}, {"record": str(outside)}, {"record": "../../../x/runs/y"}]
    (sweep / "sweep.json").write_text(json.dumps({"kind": "grid", "runs": runs}))
    (study,) = collect([sweep])
    (arm,) = study.tasks["mqar"].arms.values()
    assert [run.folder.path for run in arm.runs] == [inside]
