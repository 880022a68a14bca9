"""`mixbench check`: what is wrong is found by the right check, what is right passes."""

from __future__ import annotations

import json

import pytest
import torch

from mixbench.checks import check_mixer, mixer_checks, run_checks
from mixbench.checks.suite import CHECKS, EXCEPTED, PASSED, SEQ_LEN, SKIPPED, ChecksFailed, failures
from mixbench.config.choices import mixer_names
from mixbench.config.compose import composed_settings
from mixbench.mixers.attention import Attention
from mixbench.runs.build import build_mixer
from tests.conftest import run_command
from tests.support import broken_mixers
from tests.support.broken_mixers import BROKEN, RIGHT, BothWays, Decay, Grows, LeaksOneStep
from tests.support.documented import ROOT

NAMES = [check.name for check in CHECKS]
REPORTED = [check.name for check in CHECKS if not check.required]
# What takes seconds; `test_what_is_only_reported` has them.
SLOW = ["growth", "torch_compile"]


def statuses(outcomes):
    return {outcome.check: outcome.status for outcome in outcomes}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.filterwarnings("ignore:std")
def test_what_is_wrong_fails_the_right_checks_and_no_others(broken):
    expected, says = BROKEN[broken]
    failed = failures(run_checks(broken, seq_len=66, skip=REPORTED))
    assert {outcome.check for outcome in failed} == expected, failed
    assert says in failed[0].observed
    assert all(outcome.hint for outcome in failed)


def test_every_required_check_catches_something():
    caught = set.union(*(checks for checks, _ in BROKEN.values()))
    assert caught == set(NAMES) - set(REPORTED)


@pytest.mark.parametrize("right", RIGHT)
def test_what_is_right_passes(right):
    outcomes = check_mixer(right, skip=SLOW)
    assert not failures(outcomes)


def test_a_gate_that_starts_at_zero_is_said_to_wake_after_a_step():
    outcomes = run_checks(broken_mixers.WakesAfterAStep, skip=[*REPORTED])
    (arrive,) = [each for each in outcomes if each.check == "gradients_arrive"]
    assert "only after a step: in_proj.weight" not in arrive.observed  # the input is first
    assert "only after a step: the input, rate, in_proj.weight" in arrive.observed


def test_exceptions_are_shown_with_their_reason():
    outcomes = run_checks(broken_mixers.ExceptsWithReason, skip=REPORTED)
    assert statuses(outcomes)["causality"] == EXCEPTED
    (causality,) = [each for each in outcomes if each.check == "causality"]
    assert causality.observed.startswith("a look at the next token is part of the idea (the output")


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", mixer_names())
def test_no_false_alarm_on_ours(name, causal):
    task = "mqar" if causal else "forecasting"
    texts = [f"mixer={name}", f"dataset={task}", f"dataset.seq_len={SEQ_LEN}", "model.d_model=16"]
    settings = composed_settings(texts)
    outcomes = run_checks(lambda: build_mixer(settings), skip=SLOW)
    assert not failures(outcomes)
    found = statuses(outcomes)
    assert found["extrapolation"] == PASSED
    if settings.mixer["causal"]:
        assert found["causality"] == found["streaming"] == found["state_size"] == PASSED
    assert found["operations"] == found["signature"] == PASSED


def test_what_is_only_reported():
    outcomes = run_checks(
        lambda: Attention(d_model=8, causal=False, conv_width=0),
        seq_len=66,
        skip=[name for name in NAMES if name not in REPORTED],
    )
    assert statuses(outcomes)["torch_compile"] == PASSED
    by_name = {outcome.check: outcome.observed for outcome in outcomes}
    assert by_name["growth"].startswith("time T^")
    assert "state T^1.00" in by_name["growth"]
    assert by_name["torch_compile"] == "in one graph"
    assert by_name["torch_func"].startswith("without jvp")
    growing = run_checks(
        Grows, seq_len=66, skip=[name for name in NAMES if name != "extrapolation"]
    )
    assert "not finite from position" in growing[0].observed
    assert not failures(growing)


def test_check_mixer_raises_with_all_that_failed():
    with pytest.raises(ChecksFailed) as raised:
        check_mixer(LeaksOneStep, seq_len=34, skip=REPORTED)
    text = str(raised.value)
    assert isinstance(raised.value, AssertionError)
    assert text.startswith("5 required checks failed\ncausality: the output at 0 moves")
    assert "look at: what sees later tokens" in text
    with pytest.raises(ValueError, match="no check is called casuality"):
        check_mixer(Decay, skip=["casuality"])


def test_an_exception_in_forward_names_the_users_line():
    class Raises(Decay):
        def forward(self, x):
            raise IndexError("on purpose")

    outcomes = run_checks(Raises, seq_len=34, skip=[name for name in NAMES if name != "shape"])
    assert outcomes[0].observed == "IndexError: on purpose"
    assert outcomes[0].hint.startswith("test_checks.py, line ")
    assert outcomes[0].hint.endswith("in forward")


def test_the_checks_leave_the_global_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    run_checks(BothWays, seq_len=34, skip=[*REPORTED])
    assert torch.equal(torch.get_rng_state(), before)


@mixer_checks(Decay, BothWays, seq_len=34)
def test_under_pytest(check):
    check()


def test_under_pytest_a_failure_is_one_and_what_does_not_apply_is_skipped():
    decorator = mixer_checks(LeaksOneStep, BothWays, seq_len=34)
    parameters = {parameter.id: parameter.values[0] for parameter in decorator.args[1]}
    assert len(parameters) == 2 * (len(NAMES) - len(REPORTED))
    with pytest.raises(AssertionError, match="the output at 0 moves"):
        parameters["LeaksOneStep-causality"]()
    with pytest.raises(pytest.skip.Exception, match="is bidirectional"):
        parameters["BothWays-causality"]()
    parameters["LeaksOneStep-shape"]()


# The command ------------------------------------------------------------------------------------


def test_the_command_checks_both_forms(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    code = run_command("check", "mixer=attention", "model.d_model=8", "--only", "causality,shape")
    out = capfd.readouterr().out
    assert code == 0
    assert "attention, causal: 2 passed" in out
    assert "attention, bidirectional: 1 passed, 1 skipped" in out


def test_the_command_as_json_and_the_exit_code(capfd):
    """A class alone is enough: no YAML, keys go to its constructor."""
    code = run_command(
        "check", "mixer._target_=tests.support.broken_mixers.LeaksOneStep", "model.d_model=8",
        "--json",
        "--only", "causality,shape", "causal=true",
    )  # fmt: skip
    out, err = capfd.readouterr()
    (mixer,) = json.loads(out)["mixers"]
    assert code == 1
    assert err.startswith("mixbench: 1 required checks failed: LeaksOneStep, causal: causality")
    assert err.count("\n") == 1
    assert not mixer["passed"]
    assert {each["check"]: each["status"] for each in mixer["checks"]} == {
        "shape": "passed",
        "causality": "failed",
    }


def test_all_means_every_mixer_in_every_form_that_it_has(capfd):
    assert (
        run_command("check", "mixer=all", "model.d_model=8", "--only", "parameters", "--json") == 0
    )
    found = [
        (each["mixer"], each["causal"]) for each in json.loads(capfd.readouterr().out)["mixers"]
    ]
    assert sorted(found) == sorted(
        [(name, True) for name in mixer_names()]
        + [(name, False) for name in ("attention", "laplacian", "local", "spiderweb")]
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "check: expected mixer=NAME, mixer=all or"),
        (("mixer=atention",), "did you mean 'attention'"),
        (("mixer=lattice", "--only", "casuality"), "did you mean 'causality'"),
        (("mixer=lattice", "mixer.num_heads=3"), "mixer.num_heads: expected a divisor"),
        (("mixer=gdn", "causal=false", "mixer.causal=false"), "mixer.causal: expected true"),
        (("mixer._target_=tests.support.broken_mixers.Nothing",), "class that imports"),
        (("mixer._target_=torch.nn.Identity",), "expected a subclass of mixbench.mixers.base.M"),
        (
            ("mixer._target_=tests.support.broken_mixers.Decay", "mixer.gian=1"),
            "mixer.gian: expected",
        ),
    ],
)
def test_a_mistake_is_one_line(capfd, arguments, says):
    assert run_command("check", *arguments) == 2
    err = capfd.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_the_list_of_checks(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert run_command("check", "--list") == 0
    out = capfd.readouterr().out
    assert all(name in out for name in NAMES)
    assert SKIPPED not in out


def test_the_page_has_every_check():
    page = (ROOT / "docs" / "checks.md").read_text()
    rows = [f"| `{c.name}` | {'yes' if c.required else 'no'} | {c.what} |" for c in CHECKS]
    assert "\n".join(rows) in page
