"""Estimates and their intervals, against numbers worked by hand and against what must always hold."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.evaluation.statistics import (
    geometric_mean,
    geometric_mean_ratio,
    mean_difference,
    mean_difference_of_seeds,
    pass_at_k,
    share,
    share_of_seeds,
    student_p_value,
    student_quantile,
)

shares = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("num_samples", "num_correct", "k", "expected"),
    [
        (10, 3, 1, 0.3),
        (10, 3, 2, 1 - (7 / 10) * (6 / 9)),
        (4, 2, 3, 1.0),  # three of four samples cannot all miss two correct ones
        (5, 0, 5, 0.0),
        (5, 5, 1, 1.0),
        (8, 1, 8, 1.0),
    ],
)
def test_pass_at_k_equals_the_worked_number(num_samples, num_correct, k, expected):
    assert pass_at_k(num_samples, num_correct, k) == pytest.approx(expected)


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_all_draws_that_hold_a_correct_sample(num_samples, data):
    num_correct = data.draw(st.integers(0, num_samples))
    k = data.draw(st.integers(1, num_samples))
    draws = list(combinations(range(num_samples), k))
    holding = sum(any(sample < num_correct for sample in draw) for draw in draws)
    assert pass_at_k(num_samples, num_correct, k) == pytest.approx(holding / len(draws))


@pytest.mark.parametrize(("num_samples", "num_correct", "k"), [(3, 1, 4), (3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_pass_at_k_refuses_what_is_not_defined(num_samples, num_correct, k):
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(num_samples, num_correct, k)


def test_a_share_is_the_mean_over_problems_inside_its_interval():
    estimate = share([0.0, 0.5, 1.0, 0.5])
    assert estimate.value == 0.5
    assert 0 < estimate.low < 0.5 < estimate.high < 1


def test_no_success_on_24_problems_leaves_room_for_about_one_in_nine():
    estimate = share([0.0] * 24)
    assert (estimate.value, estimate.low) == (0.0, 0.0)
    assert estimate.high == pytest.approx(3 / 26)


def test_more_problems_give_a_narrower_interval():
    few, many = share([0.0, 1.0] * 5), share([0.0, 1.0] * 50)
    assert many.high - many.low < (few.high - few.low) / 2


def test_intervals_hold_the_true_share_about_19_times_in_20():
    """24 problems of differing difficulty, four samples each: the setting of an ordinary evaluation."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(300):
        difficulty = rng.beta(1, 2, 24)  # mean 1/3
        estimate = share((rng.binomial(4, difficulty) / 4).tolist())
        held += estimate.low <= 1 / 3 <= estimate.high
    assert 0.92 <= held / 300 <= 0.99


@given(shares)
def test_an_interval_holds_its_estimate_and_stays_between_0_and_1(values):
    estimate = share(values)
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8))
def test_problems_that_do_no_better_give_no_higher_an_interval(pairs):
    low, high = share([min(pair) for pair in pairs]), share([max(pair) for pair in pairs])
    assert low.value <= high.value
    assert low.low <= high.low + 1e-12
    assert low.high <= high.high + 1e-12


def test_a_share_needs_a_problem():
    with pytest.raises(ValueError, match="no problems"):
        share([])


def test_a_geometric_mean_weighs_double_and_half_alike():
    assert geometric_mean([[2.0], [0.5]]).value == pytest.approx(1.0)
    assert geometric_mean([[1.0, 8.0], [], [1.0]]).value == pytest.approx(2.0)


def test_without_speedups_there_is_no_geometric_mean():
    assert geometric_mean([[], []]) is None


def test_one_problem_gives_a_geometric_mean_without_an_interval():
    estimate = geometric_mean([[2.0, 2.0], []])
    assert (estimate.value, estimate.low, estimate.high) == (pytest.approx(2.0), None, None)


def test_the_interval_of_a_geometric_mean_spans_its_problems():
    estimate = geometric_mean([[1.0], [4.0], [2.0], [2.0]])
    assert estimate.value == pytest.approx(2.0)
    # Logarithms to base 2 are 0, 2, 1, 1: standard error 0.408, Student's quantile 3.18.
    assert (estimate.low, estimate.high) == pytest.approx((2 ** (1 - 1.299), 2 ** (1 + 1.299)), rel=2e-3)


def test_the_change_of_paired_problems_is_known_better_than_either_side():
    """Difficulty differs much between problems and cancels in pairs."""
    before = [0.1 * problem for problem in range(9)] * 4
    after = [value + 0.1 * (number % 3) for number, value in enumerate(before)]
    change = mean_difference(before, after)
    assert change.value == pytest.approx(0.1)
    assert change.low > 0 and change.clear
    assert change.high - change.low < share(before).high - share(before).low


def test_no_difference_anywhere_has_no_interval_and_is_not_clear():
    change = mean_difference([0.5] * 12, [0.5] * 12)
    assert (change.value, change.low, change.high, change.p_value) == (0, None, None, 1.0)
    assert not change.clear


def test_one_problem_of_a_hundred_that_differs_gives_an_interval_of_two_points():
    """The standard error of one 1 among 99 zeros is 0.01, and Student's quantile is 1.98."""
    change = mean_difference([0.0] * 100, [1.0] + [0.0] * 99)
    assert (change.value, change.p_value) == (0.01, 1.0)
    assert (change.low, change.high) == pytest.approx((0.01 - 0.01984, 0.01 + 0.01984), abs=1e-4)


@pytest.mark.parametrize(("gained", "p_value"), [(3, 2 / 8), (5, 2 / 32), (6, 2 / 64), (12, 2 / 4096)])
def test_problems_that_all_gain_have_the_p_value_of_two_swaps_among_all(gained, p_value):
    change = mean_difference([0.0] * gained, [1.0] * gained)
    assert change.p_value == pytest.approx(p_value)
    assert change.clear == (gained > 5)


def test_many_problems_are_swapped_at_random_with_the_observed_swap_among_them():
    change = mean_difference([0.0] * 40, [1.0] * 40)
    assert change.p_value == pytest.approx(1 / 2000)


def test_seeds_that_disagree_widen_the_interval():
    problems = np.random.default_rng(0).random(30)
    alike = [problems + 0.1 + 0.01 * np.random.default_rng(seed).random(30) for seed in range(3)]
    apart = [one + shift for one, shift in zip(alike, (-0.1, 0.0, 0.1), strict=True)]
    narrow, wide = (mean_difference_of_seeds([problems] * 3, one) for one in (alike, apart))
    assert narrow.value == pytest.approx(wide.value)
    assert narrow.low > 0 > wide.low


def test_a_change_that_depends_on_the_seed_is_not_clear():
    problems = np.random.default_rng(0).random(200)
    after = [problems + shift for shift in (-0.05, 0.05, 0.3)]
    assert mean_difference(problems, np.mean(after, axis=0)).clear
    change = mean_difference_of_seeds([problems] * 3, after)
    assert change.low < 0 < change.high and not change.clear
    alike = mean_difference_of_seeds([problems] * 3, [problems + shift for shift in (0.09, 0.1, 0.11)])
    assert alike.low > 0 and alike.clear


def test_the_interval_of_a_share_over_seeds_is_no_narrower_than_over_problems_and_grows_as_seeds_differ():
    problems = np.random.default_rng(0).random(40) * 0.6 + 0.2
    alone, alike = share(problems.tolist()), share_of_seeds([problems] * 3)
    apart = share_of_seeds([problems - 0.15, problems, problems + 0.15])
    assert alike.low <= alone.low < alone.high <= alike.high
    assert apart.value == pytest.approx(alone.value)
    assert apart.low < alike.low and apart.high > alike.high
    assert share_of_seeds([[0.0] * 24] * 2) == share([0.0] * 24)


def test_students_p_value_is_that_of_the_tables():
    assert student_p_value(1.0, 1) == pytest.approx(0.5)
    assert student_p_value(-2.0, 10) == pytest.approx(0.07339, abs=1e-5)
    quantiles = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980}
    for degrees, quantile in quantiles.items():
        assert student_p_value(quantile, degrees) == pytest.approx(0.05, rel=1e-3)


def test_students_quantile_is_within_a_fifth_of_a_percent_of_the_tables():
    tables = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980}
    for degrees, quantile in tables.items():
        assert student_quantile(degrees) == pytest.approx(quantile, rel=2e-3)


def test_the_ratio_of_geometric_means_pairs_problems():
    before, after = [[1.0], [10.0], [100.0]], [[2.0], [20.0], [200.0]]
    ratio = geometric_mean_ratio(before, after)
    assert ratio.value == pytest.approx(2.0)
    assert (ratio.low, ratio.high) == (None, None), "all problems have the same ratio"
    assert ratio.p_value == pytest.approx(2 / 8)
    assert geometric_mean_ratio([[], []], [[1.0], [2.0]]) is None


def test_the_ratio_of_paired_problems_has_an_interval_around_it():
    before = [[1.0], [10.0], [100.0], []]
    ratio = geometric_mean_ratio(before, [[2.0], [30.0], [200.0], [7.0]])
    assert ratio.low < ratio.value < ratio.high


@pytest.mark.parametrize("effect", [0.0, 0.3])
def test_intervals_of_differences_hold_the_truth_and_p_values_their_level(effect):
    """24 problems, four samples each; the whole table is in docs/results/intervals.md."""
    rng = np.random.default_rng(1)
    held = clear = 0
    for _ in range(300):
        difficulty = rng.beta(0.5, 0.5, 24)
        better = difficulty + effect * (1 - difficulty)  # the mean gain is half the effect
        before, after = rng.binomial(4, difficulty) / 4, rng.binomial(4, better) / 4
        change = mean_difference(before, after)
        held += change.low is not None and change.low <= effect / 2 <= change.high
        clear += change.clear
    assert 0.92 <= held / 300 <= 0.98
    assert clear / 300 <= 0.07 if effect == 0 else clear / 300 > 0.5


def test_the_same_numbers_give_the_same_interval_every_time():
    assert share([0.1, 0.9, 0.4]) == share([0.1, 0.9, 0.4])
