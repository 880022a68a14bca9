"""The verdicts' error rates, measured on simulated studies."""

from __future__ import annotations

import pytest

from tests.stress import calibration


def failing(rates):
    return [(rate.check, rate.case, rate.rate) for rate in rates if not rate.holds]


@pytest.mark.parametrize(
    ("measure", "bounds"),
    [
        (calibration.family_rates, (0, 0.05)),
        (calibration.power_rates, (0.8, 1)),
        (calibration.coverage_rates, (0.93, 0.97)),
        (calibration.follow_up_rates, (0.75, 1)),
        (calibration.second_look_rates, (0, 0.05)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_required_rates_hold(measure, bounds):
    rates = measure()
    assert failing(rates) == []
    required = [rate.bounds for rate in rates if rate.bounds is not None]
    assert required
    assert set(required) == {bounds}


def test_identical_arms_of_every_shape_beat_each_other_in_at_most_5_percent_of_2000_studies():
    rates = [rate for rate in calibration.null_rates() if rate.bounds is not None]
    assert failing(rates) == []
    assert {rate.bounds for rate in rates} == {(0, 0.05)}
    assert {rate.case.split(",")[0] for rate in rates} == set(calibration.SHAPES)
    assert {rate.of for rate in rates} == {2_000}


def test_the_same_rates_at_every_call():
    assert calibration.second_look_rates(40) == calibration.second_look_rates(40)


def test_the_command_prints_a_table_and_fails_where_a_rate_does(monkeypatch, capsys):
    good = calibration.Rate("check", "case", 0.021, 2_000, (0.0, 0.05))
    monkeypatch.setattr(calibration, "calibrate", lambda studies: [good])
    assert calibration.main([]) == 0
    assert "2.1%" in capsys.readouterr().out
    bad = calibration.Rate("check", "case", 0.07, 2_000, (0.0, 0.05))
    monkeypatch.setattr(calibration, "calibrate", lambda studies: [good, bad])
    assert calibration.main(["--studies", "500"]) == 1
    assert "does not hold" in capsys.readouterr().out


def test_too_few_studies_are_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        calibration.main(["--studies", "0"])
    assert stopped.value.code == 2
    assert "expected 100 or more" in capsys.readouterr().err
