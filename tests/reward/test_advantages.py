"""Advantage estimators: worked numbers, edge cases, and the bias of each on a policy small enough to
enumerate."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernel_core.config import TrainConfig
from kernel_core.reward.advantages import ESTIMATORS, dr_grpo, grpo, grpo_std, kevin, rloo, trloo

NAN = float("nan")
RETURNS = np.array([[1.0, 2.0], [0.0, 0.0], [0.0, 1.0], [3.0, 1.0]])

groups = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 6), st.integers(1, 4)),
    elements=st.floats(-2, 5, allow_nan=False, width=32),
)


def test_trloo_compares_with_the_others_at_the_same_turn():
    expected = [[1 - 3 / 3, 2 - 2 / 3], [0 - 4 / 3, 0 - 4 / 3], [0 - 4 / 3, 1 - 1], [3 - 1 / 3, 1 - 1]]
    np.testing.assert_allclose(trloo(RETURNS), expected)


def test_grpo_compares_with_everyone_at_the_same_turn():
    np.testing.assert_allclose(grpo(RETURNS), [[0, 1], [-1, -1], [-1, 0], [2, 0]])


def test_grpo_std_divides_by_the_spread_of_the_turn():
    std = [np.sqrt(6 / 4), np.sqrt(2 / 4)]
    np.testing.assert_allclose(grpo_std(RETURNS), grpo(RETURNS) / std)


def test_rloo_puts_one_number_on_a_whole_conversation():
    first = [1 - 3 / 3, 0 - 4 / 3, 0 - 4 / 3, 3 - 1 / 3]
    np.testing.assert_allclose(rloo(RETURNS), np.column_stack([first, first]))


def test_dr_grpo_is_the_unscaled_group_mean_of_conversations():
    np.testing.assert_allclose(dr_grpo(RETURNS), np.column_stack([[0, -1, -1, 2]] * 2))


def test_kevin_takes_all_turns_as_one_population():
    np.testing.assert_allclose(kevin(RETURNS), (RETURNS - 1.0) / RETURNS.std())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_group_of_one_learns_nothing(name):
    assert not ESTIMATORS[name](np.array([[1.0, 2.0]])).any()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_group_without_variance_learns_exactly_nothing(name):
    assert not ESTIMATORS[name](np.full((7, 3), 0.1)).any()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_sums_that_differ_by_rounding_alone_are_alike(name):
    alike = np.array([[0.1 + 0.2 + 0.3], [0.3 + 0.2 + 0.1], [0.6]])
    assert len(set(alike.flatten())) > 1
    assert not ESTIMATORS[name](alike).any()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_absent_turn_gets_no_advantage_and_enters_no_baseline(name):
    absent = np.array([[1.0, NAN], [0.0, 2.0], [4.0, 0.0]])
    advantages = ESTIMATORS[name](absent)
    assert np.isfinite(advantages).all()
    assert advantages[0, 1] == 0.0
    if name in ("trloo", "grpo", "grpo_std"):
        np.testing.assert_allclose(advantages[1:, 1:], ESTIMATORS[name](absent[1:, 1:]))


def test_a_turn_that_only_one_trajectory_reached_has_no_baseline():
    assert trloo(np.array([[1.0, 5.0], [0.0, NAN]]))[0, 1] == 0.0


@pytest.mark.parametrize("name", ESTIMATORS)
@given(groups)
def test_a_constant_added_to_every_return_changes_nothing(name, returns_G_T):
    moved = ESTIMATORS[name](returns_G_T + 16.0)
    if returns_G_T.std(axis=0).min() > 1e-3 or name not in ("grpo_std", "kevin"):
        np.testing.assert_allclose(moved, ESTIMATORS[name](returns_G_T), atol=1e-6)


@given(groups)
def test_trloo_is_grpo_times_n_over_n_minus_one(returns_G_T):
    n = returns_G_T.shape[0]
    np.testing.assert_allclose(trloo(returns_G_T), grpo(returns_G_T) * n / (n - 1), atol=1e-9)


def test_every_configured_name_has_an_estimator():
    allowed = TrainConfig.model_fields["estimator"].annotation.__args__
    assert set(ESTIMATORS) == set(allowed)


def _expected_gradient(estimator, num_trajectories, probability, keep=None):
    """E over all outcomes of mean_i Σ_t A(i,t) · ∂ log π / ∂ logit, exactly, for a policy that succeeds with
    one probability at each of two turns (γ = 1)."""
    num_turns = 2
    total = 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=num_trajectories * num_turns):
        success_G_T = np.array(outcome).reshape(num_trajectories, num_turns)
        chance = np.prod(np.where(success_G_T == 1, probability, 1 - probability))
        returns_G_T = np.cumsum(success_G_T[:, ::-1], axis=1)[:, ::-1].copy()
        if keep is not None:
            returns_G_T[~keep(success_G_T)] = NAN
        score_G_T = success_G_T - probability
        total += chance * (estimator(returns_G_T) * score_G_T).sum() / num_trajectories
    return total


@pytest.mark.parametrize("probability", [0.2, 0.5, 0.8])
def test_trloo_has_the_true_expected_gradient_and_grpo_all_but_one_nth_of_it(probability):
    num_trajectories = 4
    true_gradient = 2 * probability * (1 - probability)  # d/dlogit of the expected number of successes
    leave_one_out = _expected_gradient(trloo, num_trajectories, probability)
    group_mean = _expected_gradient(grpo, num_trajectories, probability)
    assert leave_one_out == pytest.approx(true_gradient, rel=1e-9)
    assert group_mean == pytest.approx((1 - 1 / num_trajectories) * true_gradient, rel=1e-9)


def test_masking_turns_that_lost_an_earlier_success_biases_the_gradient():
    """Dr. Kernel's released code leaves regressions out; the reason why we do not."""

    def not_a_regression(success_G_T):
        keep = np.ones_like(success_G_T, dtype=bool)
        keep[:, 1] = ~((success_G_T[:, 0] == 1) & (success_G_T[:, 1] == 0))
        return keep

    true_gradient = 2 * 0.5 * 0.5
    masked = _expected_gradient(trloo, 4, 0.5, keep=not_a_regression)
    assert masked < 0.9 * true_gradient
