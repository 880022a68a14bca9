"""From a sweep YAML to verdicts: a task with known answers goes the whole way."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from mixbench.datasets import cache
from mixbench.records import folder as records
from tests.conftest import run_command
from tests.support import fake_task


def call(folder: Path, *arguments: str) -> int:
    """Runs the command in this process; records go to `folder/outputs`."""
    fake_task.write_conf(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return run_command("--config-dir", "conf", *arguments)


def sweep_of(folder: Path) -> Path:
    return max((folder / "outputs" / "sweeps").iterdir(), key=lambda path: path.stat().st_mtime)


def results(folder: Path) -> list[dict]:
    paths = sorted((folder / "outputs" / "runs").glob("*/result.json"))
    return [json.loads(path.read_text()) for path in paths]


def comparable(report: dict) -> dict:
    """A report without what the clock decides."""

    def strip(value):
        if isinstance(value, dict):
            ignored = ("seconds", "wall_seconds", "launched", "first_started", "last_started")
            return {k: strip(v) for k, v in value.items() if k not in ignored}
        return [strip(each) for each in value] if isinstance(value, list) else value

    return strip(report)


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """The comparison `known`, run once: its folder and exit code."""
    folder = tmp_path_factory.mktemp("known")
    return folder, call(folder, "sweep=known", "epochs=4")


@pytest.fixture(scope="module")
def report(known):
    (study,) = json.loads((sweep_of(known[0]) / "report.json").read_text())["studies"]
    (task,) = study["tasks"]
    return study, task


def test_a_better_an_equal_and_a_broken_mixer_get_their_verdicts(report):
    _, task = report
    first, twin, broken = task["verdicts"]
    assert first["headline"].startswith(
        "first vs plain: mechanism confirmed, beats tuned baseline (d = +0."
    )
    assert "95 % CI [" in first["headline"]
    assert first["headline"].endswith(" 6 seeds)")
    assert twin["outcome"] == "not beaten"
    assert twin["headline"] == (
        "twin vs plain: mechanism not stated, baseline not beaten, equivalent "
        "(d = +0, 95 % CI [+0, +0], p = 1, 6 seeds)"
    )
    assert broken["outcome"] == "not beaten"
    assert broken["mechanism"] == "not evaluated"


def test_the_equal_mixer_is_equal_to_the_last_bit(report):
    """Twins share names and shapes of parameters, data and order: pairing is exact."""
    _, task = report
    (twin,) = [each for each in task["comparisons"] if each["idea"] == "twin"]
    assert [pair["difference"] for pair in twin["pairs"]] == [0.0] * 6


def test_a_diverging_arm_is_counted_and_scores_worst(known, report):
    _, task = report
    (broken,) = [arm for arm in task["arms"] if arm["name"] == "broken"]
    assert [run["status"] for run in broken["lost"]] == ["diverged"] * 8
    assert [trial["mean"] for trial in broken["trials"]] == [None, None]
    assert broken["chosen"] == 0
    assert broken["budget"] == [None, None]
    (comparison,) = [each for each in task["comparisons"] if each["idea"] == "broken"]
    scores = [pair["baseline"] for pair in comparison["pairs"]]
    worst = min([*scores, task["trivial_baseline"]["accuracy"]])
    assert {pair["idea"] for pair in comparison["pairs"]} == {worst}
    assert known[1] == 0  # a run that diverges is a result; one that fails is not
    assert "broken diverged at 6" in task["verdicts"][2]["headline"]


def test_budgets_seeds_and_inheritance(report):
    study, task = report
    arms = {arm["name"]: arm for arm in task["arms"]}
    assert {len(arm["trials"]) for arm in arms.values()} == {2}
    rate = arms["plain"]["evaluated"]["lr"]
    assert [trial["values"] for trial in arms["first"]["trials"]] == [
        {"lr": rate, "mixer.gain": 0.5},
        {"lr": rate, "mixer.gain": 1.0},
    ]
    assert arms["first"]["inherited"] == {"lr": "plain"}
    assert arms["first"]["on_edge"] == ["mixer.gain"]
    assert [run["seed"] for run in arms["plain"]["evaluation"]] == list(range(1000, 1006))
    assert study["published"] == "first wins"
    assert study["stage"] == "finished"
    found = task["comparisons"][0]["statistics"]
    assert found["comparisons_in_study"] == 3
    assert found["p"] == pytest.approx(2**-6)
    assert found["p_adjusted"] == pytest.approx(3 * 2**-6)


def test_the_ablation_shows_what_it_takes_away(report):
    _, task = report
    (weak,) = task["ablations"]
    assert weak["overrides"] == ["mixer.gain=0.0"]
    assert weak["difference"]["n"] == 2
    assert weak["difference"]["mean"] < -0.3


def test_selection_runs_hold_no_test_metric(known):
    selection = [result for result in results(known[0]) if result["seed"] < 1000]
    judged = [result for result in results(known[0]) if result["seed"] >= 1000]
    assert len(selection) == 8
    assert len(judged) == 4 * 6 + 2
    for result in selection:
        assert not [name for name in result["metrics"] if name.startswith("test")]
        assert not [name for name in result.get("overlap", {}) if "test" in name]
        assert result["config"]["test"] is False
    for result in judged:
        assert result["status"] == "diverged" or "test/accuracy" in result["metrics"]


def test_the_written_report_is_whole(known):
    folder = sweep_of(known[0])
    text = (folder / "report.md").read_text()
    assert "**first vs plain: mechanism confirmed, beats tuned baseline" in text
    assert "Published: first wins." in text
    assert f"    mixbench --config-dir {known[0]}/conf sweep=known epochs=4" in text
    drawn = {path.name for path in (folder / "plots").iterdir()}
    kinds = ("paired", "curves", "budget", "lr")
    assert {f"known-{kind}.png" for kind in kinds} <= drawn
    assert all(f"plots/{name}" in text for name in drawn)


def test_the_report_command_gives_the_same_again(known, tmp_path, capfd):
    folder = sweep_of(known[0])
    before = (folder / "report.json").read_bytes()
    assert call(known[0], "--help") == 0
    assert run_command("report", folder, "--out", tmp_path) == 0
    assert (tmp_path / "report.json").read_bytes() == before
    assert "beats tuned baseline" in capfd.readouterr().out


def test_the_same_command_runs_nothing_again(known, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in known[0].glob("outputs/runs/*/result.json")}
    first = sweep_of(known[0])
    read, reads = records._read_result, Counter[Path]()
    records._read_before.clear()
    monkeypatch.setattr(records, "_read_result", lambda path: reads.update([path]) or read(path))
    assert call(known[0], "sweep=known", "epochs=4") == 0
    assert reads == dict.fromkeys(before, 1)  # each once, however many the runs are
    second = sweep_of(known[0])
    assert second != first
    assert {path: path.stat().st_mtime_ns for path in before} == before
    contents = [json.loads((folder / "sweep.json").read_text()) for folder in (first, second)]
    assert [content["launched"] for content in contents] == [34, 0]
    assert contents[1]["earlier"]["launched"] == 34
    assert contents[1]["earlier"]["wall_seconds"] == contents[0]["wall_seconds"] > 1
    reports = [json.loads((folder / "report.json").read_text()) for folder in (first, second)]
    assert comparable(reports[0]) == comparable(reports[1])


def test_permuted_test_labels_change_no_choice(tmp_path, monkeypatch):
    assert call(tmp_path / "as_is", "sweep=small", "epochs=2") == 0
    monkeypatch.setattr(fake_task.FirstToken, "permute_test", True)
    cache._splits.clear()  # made before
    assert call(tmp_path / "permuted", "sweep=small", "epochs=2") == 0
    (study,) = json.loads((sweep_of(tmp_path / "as_is") / "report.json").read_text())["studies"]
    (other,) = json.loads((sweep_of(tmp_path / "permuted") / "report.json").read_text())["studies"]
    for one, two in zip(study["tasks"][0]["arms"], other["tasks"][0]["arms"], strict=True):
        assert one["trials"] == two["trials"]
        assert one["chosen"] == two["chosen"]
        assert one["evaluated"] == two["evaluated"]
        assert [run["valid"] for run in one["evaluation"]] == [
            run["valid"] for run in two["evaluation"]
        ]
        assert [run["test"] for run in one["evaluation"]] != [
            run["test"] for run in two["evaluation"]
        ]


def test_a_failed_run_leaves_no_verdict_until_it_is_retried(tmp_path, monkeypatch, capfd):
    generate = fake_task.FirstToken.generate

    def fail(self, split, seed):
        if seed == 1001:
            raise OSError("the disk is on fire")
        return generate(self, split, seed)

    with monkeypatch.context() as patch:
        patch.setattr(fake_task.FirstToken, "generate", fail)
        assert call(tmp_path, "sweep=small", "epochs=1") == 1
    out, err = capfd.readouterr()
    (study,) = json.loads((sweep_of(tmp_path) / "report.json").read_text())["studies"]
    assert study["tasks"][0]["verdicts"][0]["headline"] == (
        "first vs plain: mechanism confirmed on 1 of 2 models, "
        "no verdict (2 runs missing or failed)"
    )
    assert "OSError: the disk is on fire" in out
    assert err == (
        "mixbench: 2 of 12 runs have no result (2 failed); "
        f"`mixbench --config-dir {tmp_path}/conf sweep=small epochs=1 rerun=failed` makes them "
        "(the first raised OSError: the disk is on fire)\n"
    )
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("outputs/runs/*/result.json")}
    assert call(tmp_path, "sweep=small", "epochs=1", "rerun=failed") == 0
    out, _ = capfd.readouterr()
    assert "evaluation of the chosen configurations: 2 to run" in out
    assert "no verdict" not in out
    changed = [path for path, when in kept.items() if path.stat().st_mtime_ns != when]
    assert len(changed) == 2


def test_a_configuration_that_interpolates_the_seed_is_found_again(tmp_path):
    assert call(tmp_path, "sweep=small", "epochs=1", "sweep.arms.first.mixer=seeded") == 0
    (study,) = json.loads((sweep_of(tmp_path) / "report.json").read_text())["studies"]
    assert study["environment"]["runs"] == {"completed": 12}
    gains = {(r["seed"], r["config"]["mixer"]["gain"]) for r in results(tmp_path)}
    assert {(0, 0.0), (1, 1.0), (1000, 1000.0), (1001, 1001.0)} <= gains


def test_a_sweep_with_other_settings_is_another_comparison(tmp_path, capfd):
    assert call(tmp_path, "sweep=small", "epochs=1", "sweep.eval_seeds=3") == 0
    assert call(tmp_path, "sweep=small", "epochs=1") == 0
    assert call(tmp_path, "sweep=small", "epochs=1", "hydra/launcher=basic") == 0
    capfd.readouterr()
    assert run_command("report", tmp_path / "outputs") == 0
    studies = json.loads((tmp_path / "outputs" / "report.json").read_text())["studies"]
    counts = [len(study["tasks"][0]["comparisons"][0]["pairs"]) for study in studies]
    assert sorted(counts) == [2, 3]  # and no study of left-over runs
    notes = [note for study in studies for note in study["notes"]]
    assert "1 other starts of the same command are set aside" in notes
    assert "changed from the sweep as it is shipped: epochs=1 sweep.eval_seeds=3" in notes
    drawn = {path.name for path in (tmp_path / "outputs" / "plots").iterdir()}
    assert {"small-0-paired.png", "small-1-paired.png"} <= drawn


def test_a_result_that_cannot_be_read_is_made_again(tmp_path):
    assert call(tmp_path, "sweep=small", "epochs=1") == 0
    broken, *others = sorted((tmp_path / "outputs" / "runs").glob("*/result.json"))
    whole = json.loads(broken.read_text())
    kept = {path: path.stat().st_mtime_ns for path in others}
    for text in ("{", json.dumps({**whole, "metrics": {}}), json.dumps({**whole, "metrics": None})):
        broken.write_text(text)
        assert call(tmp_path, "sweep=small", "epochs=1") == 0
        assert json.loads(broken.read_text())["metrics"] == whole["metrics"]
        assert {path: path.stat().st_mtime_ns for path in others} == kept


def test_trials_that_trained_the_same_thing_are_named(tmp_path):
    assert call(tmp_path, "sweep=padded") == 0
    (study,) = json.loads((sweep_of(tmp_path) / "report.json").read_text())["studies"]
    trials = "grad_clip=1000000.0 and grad_clip=10000000.0"
    said = f"first_token, plain: trials {trials} produced identical losses"
    assert len([note for note in study["notes"] if note.startswith(said)]) == 1
    assert not [note for note in study["notes"] if note.startswith("first_token, first")]


def test_a_preview_lists_the_runs_and_makes_nothing(tmp_path, capfd):
    assert call(tmp_path, "sweep=known", "sweep.preview=true", "sweep.eval_seeds=3") == 0
    out = capfd.readouterr().out
    assert "22 runs (8 selection, 12 evaluation, 2 ablation); nothing was run" in out
    assert not (tmp_path / "outputs").exists()


OVERRIDES = "sweep.arms.first.overrides"
OTHER_GRID = ("sweep=padded", "~sweep.arms.plain.grid.grad_clip")
MISTAKES = [
    (["sweep=known", "mixer=attention"], "mixer", "no override: sweep=known decides it"),
    (["sweep=known", "seed=3"], "seed", "sweep.eval_seeds=16"),
    (["sweep=known", "lr=1e-3"], "lr", "no override"),
    (["sweep=known", "epochs=1,2"], "epochs", "one value"),
    (["sweep=known", "sweep.eval_seed=3"], "sweep.eval_seed", "did you mean 'eval_seeds'"),
    (["sweep=known", "sweep.eval_seeds=0"], "sweep.eval_seeds", "at least 1"),
    (["sweep=known", "sweep.arms.first.grid.mixer.gain=[1.0]"], "sweep.arms", "first: 1"),
    (
        ["sweep=known", "sweep.arms.first.grid.mixer.gian=[1.0]"],
        "sweep.arms.first.grid.mixer.gian",
        "",
    ),
    (["sweep=known", "sweep.arms.first.mixer=frist"], "mixer", "did you mean 'first'"),
    (["sweep=known", "sweep.ablations.weak=['mixer.gian=0']"], "mixer.gian", "did you mean 'gain'"),
    (["sweep=known", "sweep.margin=small"], "sweep.margin", "a number, got small"),
    (["sweep=known", "hydra.mode=RUN"], "sweep", "end the YAML with"),
    (["-m", "sweep=known,small"], "sweep", "a comparison by itself"),
    (["sweep=known", "optimizer.lr=1e-3"], "optimizer.lr", "set lr=0.001"),
    (["sweep=known", "sweep.arms.plain.grid.lr=[1,1.0]"], "sweep.arms.plain.grid", "differ"),
    (
        [*OTHER_GRID, "+sweep.arms.plain.grid.warmup=[0.1,0.2]", "schedule=constant"],
        "warmup",
        "no value with schedule=constant",
    ),
    (
        [*OTHER_GRID, "+sweep.arms.plain.grid.out_gate=[false,true]"],
        "out_gate",
        "nothing here uses it, got false; in task first_token, arm plain",
    ),
    (["sweep=known", "sweep.arms.first.overrides=['mixer=twin']"], OVERRIDES, "got mixer"),
    (["sweep=known", "+sweep.foo=1"], "sweep.foo", "unknown"),
    (["sweep=known", "sweep.idea=3"], "sweep.idea", "an arm, or a list of arms"),
    (["sweep=known", "sweep.baselines=plain"], "sweep.baselines", "a list"),
    (["sweep=known", "sweep.arms=null"], "sweep.arms", ""),
    (["sweep=none", "sweep.eval_seeds=3"], "sweep.eval_seeds", "a comparison"),
    (["sweep=smoke", "sweep.preview=true"], "sweep.preview", "a comparison"),
    (["sweep=known", "sweep.out=/proc/nowhere"], "sweep.out", "a folder that can be written"),
    (["sweep=known", "epochs=0"], "epochs", "in task first_token, arm plain"),
]


@pytest.mark.parametrize(("arguments", "key", "says"), MISTAKES)
def test_a_mistake_is_one_line(tmp_path, capfd, arguments, key, says):
    assert call(tmp_path, *arguments) == 2
    out, err = capfd.readouterr()
    (line,) = [line for line in (out + err).splitlines() if line.strip()]
    assert line.startswith(f"mixbench: {key}: expected "), line
    assert says in line
    assert not (tmp_path / "outputs").exists()
