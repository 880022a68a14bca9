"""Statistics against scipy.stats, brute force and numbers worked out by hand."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

from mixbench import stats

FORMULAS = (
    stats.t_interval,
    stats.sign_flip_p,
    stats.probability_of_improvement,
    stats.interquartile_mean,
    stats.effect_size,
    stats.holm,
    stats.expected_best,
)


def sample(n, shift=0.0, seed=0):
    return shift + np.random.default_rng(seed).standard_normal(n)


def judge(d, margin, p=None, **changes):
    """The verdict on differences against a baseline that scores 0."""
    d = np.asarray(d, dtype=float)
    p = stats.sign_flip_p(d) if p is None else p
    arguments = {"idea_scores": d, "baseline_scores": 0 * d, "ceiling": None}
    return stats.verdict(d, margin, p, **{**arguments, "higher_is_better": True, **changes})


# ---------------------------------------------------------------- intervals and tests


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("n", [2, 8, 100])
def test_t_interval(n, level):
    x = sample(n)
    expected = scipy.stats.t.interval(level, n - 1, loc=x.mean(), scale=scipy.stats.sem(x))
    assert stats.t_interval(x, level) == pytest.approx(expected)


def test_t_interval_of_one_value_and_of_equal_values():
    assert stats.t_interval([3.0]) == (-math.inf, math.inf)
    assert stats.t_interval([0.1] * 7) == (0.1, 0.1)  # the mean of these is not 0.1 in floats


@pytest.mark.parametrize("n", [2, 3, 8, 9])
@pytest.mark.parametrize("shift", [-0.5, 0.0, 0.5])
def test_sign_flip_p_is_scipys_exact_permutation_test(n, shift):
    d = sample(n, shift, seed=n)
    expected = scipy.stats.permutation_test(
        (d, np.zeros(n)),
        lambda a, b, axis: (a - b).mean(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=2**n,
        alternative="greater",
    )
    assert stats.sign_flip_p(d) == expected.pvalue


def test_sign_flip_p_by_hand():
    assert stats.sign_flip_p([4]) == 1 / 2
    assert stats.sign_flip_p([1, 2, 3]) == 1 / 8
    assert stats.sign_flip_p([-1, 2, 3]) == 2 / 8  # sums of at least 4: 4 and 6
    assert stats.sign_flip_p([0, 0, 5]) == 4 / 8  # ties count
    assert stats.sign_flip_p([0, 0]) == 1.0
    # 0.3 - 0.1 - 0.2 is 0 but for rounding: all sums of at least 0, of which there are two 0s.
    assert stats.sign_flip_p([0.3, -0.1, -0.2]) == 5 / 8


def test_sign_flip_p_of_many_is_exact_up_to_30_and_close_beyond():
    # All flips of 1, ..., 1: the sum is a binomial.
    for n, wins in ((30, 19), (100, 60)):
        d = np.where(np.arange(n) < wins, 1.0, -1.0)
        exact = scipy.stats.binom.sf(wins - 1, n, 0.5)
        if n <= stats.EXACT_FLIPS:
            assert stats.sign_flip_p(d) == pytest.approx(exact, rel=1e-12)
        else:
            spread = math.sqrt(exact * (1 - exact) / stats.FLIP_DRAWS)
            assert stats.sign_flip_p(d) == pytest.approx(exact, abs=4 * spread)
            assert stats.sign_flip_p(d) == stats.sign_flip_p(d)
    assert stats.sign_flip_p(np.ones(50)) == 1 / (stats.FLIP_DRAWS + 1)
    # For long samples the t test is close.
    d = sample(200, 0.1)
    expected = scipy.stats.ttest_1samp(d, 0, alternative="greater").pvalue
    assert stats.sign_flip_p(d) == pytest.approx(expected, abs=0.01)


def test_holm_by_hand():
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1: 0.02, 0.03, 0.06, and 0.04 raised to 0.06.
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.5, 0.9, 0.02]) == pytest.approx([1.0, 1.0, 0.06])
    assert stats.holm([0.2]) == pytest.approx([0.2])
    assert stats.holm([0.02, 0.02]) == pytest.approx([0.04, 0.04])


# ---------------------------------------------------------------- summaries


def test_probability_of_improvement():
    assert stats.probability_of_improvement([1, -1, 0, 2]) == 0.625
    assert stats.probability_of_improvement([0.0]) == 0.5


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 11])
def test_interquartile_mean(n):
    x = sample(n)
    assert stats.interquartile_mean(x) == pytest.approx(scipy.stats.trim_mean(x, 0.25))


def test_effect_size():
    assert stats.effect_size([1, 2, 3]) == 2.0
    d = sample(8, 1.0)
    t = scipy.stats.ttest_1samp(d, 0).statistic
    assert stats.effect_size(d) == pytest.approx(t / math.sqrt(8))
    assert stats.effect_size([0.1] * 3) == math.inf
    assert stats.effect_size([-0.1] * 3) == -math.inf
    assert stats.effect_size([0, 0]) == 0
    assert math.isnan(stats.effect_size([1.0]))


@pytest.mark.parametrize("lost", [0, 2])
def test_expected_best_is_the_mean_over_all_subsets(lost):
    scores = np.concatenate((sample(5), np.full(lost, -np.inf)))
    found = stats.expected_best(scores)
    for n in range(1, len(scores) + 1):
        best = [max(subset) for subset in itertools.combinations(scores, n)]
        assert found[n - 1] == pytest.approx(np.mean(best)), n
    assert np.isneginf(found[:lost]).all()
    assert np.isfinite(found[lost:]).all()


def test_expected_best_of_many_trials():
    found = stats.expected_best(np.arange(1, 2001))
    n = np.arange(1, 2001)
    assert found == pytest.approx(n / (n + 1) * 2001)  # the mean of the largest of n from 1 ... M
    assert np.isneginf(stats.expected_best([-np.inf, -np.inf])).all()


# ---------------------------------------------------------------- recall and its bits


def test_bits_to_recall_by_hand():
    assert stats.bits_to_recall(1, 32) == 5
    assert stats.bits_to_recall(2, 4) == pytest.approx(math.log2(12))
    assert stats.bits_to_recall(4, 32) == pytest.approx(19.71907)  # log2 863,040
    assert stats.bits_to_recall(2, 2) == 1  # which of the two comes first


def test_recalled_bits_by_hand():
    assert stats.recalled_bits(4, 32, 0.0) == 20  # four independent values
    # K 3, W 4, e 1/4: h2 = 2 - 3/4 log2 3, so 3 (2 - (2 - 3/4 log2 3) - 1/4 log2 3).
    assert stats.recalled_bits(3, 4, 0.25) == pytest.approx(1.5 * math.log2(3))
    assert stats.recalled_bits(5, 2, 0.5) == 0
    assert stats.recalled_bits(1, 8, [7 / 8, 0.9, 1.0]).tolist() == [0, 0, 0]  # chance and worse


@pytest.mark.parametrize("values", [2, 3, 32])
@pytest.mark.parametrize("error", [0.01, 0.3, 0.45])
def test_recalled_bits_are_the_information_in_answers_that_err_evenly(values, error):
    """Fano's inequality is an equality where all wrong values are equally likely."""
    joint = np.full((values, values), error / (values - 1) / values)
    np.fill_diagonal(joint, (1 - error) / values)
    information = (joint * np.log2(joint * values**2)).sum()
    assert stats.recalled_bits(7, values, error) == pytest.approx(7 * information)


def test_recalled_bits_fall_with_the_error():
    error = np.linspace(0, 1, 1001)
    bits = stats.recalled_bits(8, 32, error)
    assert bits.shape == error.shape
    assert (np.diff(bits) <= 0).all()
    assert bits[0] == 40
    assert stats.bits_to_recall(8, 32) < bits[0]


# ---------------------------------------------------------------- verdicts


def test_beats_needs_every_condition():
    d = np.array([1.0, 2, 3, 2, 1, 2, 3, 2])
    found = judge(d, margin=1.0)
    assert found.outcome == "beats"
    assert found.d == 2
    assert found.interval == stats.t_interval(d)
    assert found.probability_of_improvement == 1
    assert (found.qualifiers, found.seeds_needed) == ((), None)
    assert judge(d, margin=1.0, p=0.06).outcome == "inconclusive"
    assert judge(d, margin=2.1).outcome == "inconclusive"  # d below the margin, upper end above
    assert judge([-1.0, 9, 9, 9], margin=0.0, p=0.01).outcome == "inconclusive"  # lower end below 0
    # Positive at 14 of 20 seeds only.
    rare = judge(np.where(np.arange(20) < 14, 5.0, -0.1), margin=1.0)
    assert rare.interval.low > 1
    assert rare.outcome == "inconclusive"


def test_not_beaten_and_its_qualifiers():
    d = np.array([-1.0, 1, -2, 2, -1, 1, 0, 0])  # mean 0, interval +- 1.09
    assert judge(d, margin=2.0).qualifiers == ("equivalent",)
    assert judge(d, margin=1.0).outcome == "inconclusive"
    found = judge(d - 2, margin=1.0)
    assert (found.outcome, found.qualifiers) == ("not beaten", ("worse",))
    assert judge(d - 2, margin=4.0).qualifiers == ("equivalent", "worse")
    assert judge(d - 1, margin=1.0).qualifiers == ()


def test_a_difference_of_exactly_the_margin_reaches_it():
    idea, baseline = np.full(8, 0.15), np.full(8, 0.14)
    d = idea - baseline
    assert d[0] < 0.01  # by rounding
    found = judge(d, 0.01, idea_scores=idea, baseline_scores=baseline)
    assert found.outcome == "beats"


@pytest.mark.parametrize("higher", [True, False])
def test_saturated_where_both_arms_are_within_a_margin_of_the_best(higher):
    idea = np.array([1, 1, 0.99, 1, 1, 0.99, 1, 0.9])
    baseline = np.array([0.99, 1, 1, 1, 0.99, 1, 1, 1])
    ceiling = 1.0
    if not higher:
        idea, baseline, ceiling = 1 - idea, 1 - baseline, 0.0
    d = (idea - baseline) * (1 if higher else -1)
    given = {"idea_scores": idea, "baseline_scores": baseline, "higher_is_better": higher}
    assert judge(d, 0.01, ceiling=ceiling, **given).outcome == "saturated"  # 7 of 8 seeds
    assert judge(d, 0.005, ceiling=ceiling, **given).outcome != "saturated"
    assert judge(d, 0.01, ceiling=None, **given).outcome != "saturated"
    # What is at the other end of the scale is not at the ceiling.
    assert judge(d, 0.01, ceiling=2.0 if higher else -1.0, **given).outcome != "saturated"


def test_equal_arms_at_the_ceiling_are_saturated_and_without_one_inconclusive():
    ones = np.ones(8)
    given = {"idea_scores": ones, "baseline_scores": ones}
    assert judge(0 * ones, 0.0, ceiling=1.0, **given).outcome == "saturated"
    found = judge(0 * ones, 0.0, **given)
    assert (found.outcome, found.seeds_needed) == ("inconclusive", None)
    assert judge(0 * ones, 0.1, **given).qualifiers == ("equivalent",)


def test_beats_comes_before_saturated():
    baseline = np.where(np.arange(40) % 5 == 0, 0.2, 0.991)  # collapses at a fifth of the seeds
    idea = np.ones(40)
    given = {"idea_scores": idea, "baseline_scores": baseline, "ceiling": 1.0}
    assert judge(idea - baseline, 0.01, **given).outcome == "beats"
    assert judge(idea - baseline, 0.01, p=0.2, **given).outcome == "saturated"


# ---------------------------------------------------------------- seeds needed


def test_the_verdict_tells_the_seeds_needed_in_all():
    d = sample(8)
    found = judge(d, 0.7)
    assert found.outcome == "inconclusive"
    assert 8 < found.seeds_needed <= stats.MAX_SEEDS
    assert found.seeds_needed == stats.seeds_for_power(d, 0.7)
    assert judge(d, 0.7, power=None).seeds_needed is None


def test_seeds_needed_do_not_depend_on_the_unit():
    d = sample(8)
    assert stats.seeds_for_power(d, 0.7) == stats.seeds_for_power(1e-6 * d, 0.7e-6)


def test_more_power_takes_more_seeds():
    d = sample(8)
    assert stats.seeds_for_power(d, 0.7, 0.5) < stats.seeds_for_power(d, 0.7, 0.8)


def test_none_where_no_verdict_can_be_expected():
    d = sample(8)
    near = d - d.mean() + 0.5
    assert stats.seeds_for_power(near, 0.5, 0.9) is None  # at the margin
    assert stats.seeds_for_power([0.3], 0.5) is None
    assert stats.seeds_for_power(sample(stats.MAX_SEEDS, 0.5), 0.5) is None


def test_without_spread_only_the_permutation_test_asks_for_seeds():
    # With n equal differences the least p is 1/2^n: 1/16 at 4 seeds.
    assert stats.seeds_for_power([0.1] * 4, 0.05) == 5
    assert stats.seeds_for_power([0.1] * 8, 0.05, comparisons=20) == 9  # 20/2^8 > 0.05
    assert stats.seeds_for_power([0.0] * 8, 0.0) is None


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.__name__)
@pytest.mark.parametrize("bad", [[], [0.1, math.nan], [0.1, math.inf], [[0.1]]], ids=str)
def test_empty_and_not_finite_values_are_refused(formula, bad):
    with pytest.raises(ValueError, match="expected"):
        formula(bad)


def test_only_expected_best_takes_lost_ones():
    for formula in FORMULAS[:-1]:
        with pytest.raises(ValueError, match="expected finite numbers"):
            formula([-math.inf, 0.1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.t_interval([1.0, 2.0], 1.0), "level"),
        (lambda: stats.holm([1.1]), "p_values"),
        (lambda: stats.holm([-0.1]), "p_values"),
        (lambda: stats.seeds_for_power([], 0.1), "differences"),
        (lambda: stats.seeds_for_power([1.0, 2.0], -0.1), "margin"),
        (lambda: stats.seeds_for_power([1.0, 2.0], math.nan), "margin"),
        (lambda: stats.seeds_for_power([1.0, 2.0], 0.1, 1.0), "power"),
        (lambda: stats.seeds_for_power([1.0, 2.0], 0.1, comparisons=0), "comparisons"),
        (lambda: stats.bits_to_recall(0, 4), "pairs"),
        (lambda: stats.bits_to_recall(5, 4), "1 to 4"),
        (lambda: stats.recalled_bits(1, 1, 0.0), "two values"),
        (lambda: stats.recalled_bits(1, 4, 1.5), "error"),
        (lambda: stats.recalled_bits(1, 4, math.nan), "error"),
        (lambda: judge([1.0], -0.1), "margin"),
        (lambda: judge([1.0], 0.1, p=math.nan), "p_adjusted"),
        (lambda: judge([1.0], 0.1, ceiling=math.nan), "ceiling"),
        (lambda: judge([1.0], 0.1, idea_scores=[1.0, 2.0]), "as many"),
        (lambda: judge([1.0], 0.1, baseline_scores=[math.nan]), "baseline_scores"),
    ],
)
def test_other_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_neither_torch_nor_scipy_stats_is_imported():
    code = (
        "import sys, mixbench.stats; print({'torch', 'scipy.stats'} & set(sys.modules) or 'clean')"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "clean"
