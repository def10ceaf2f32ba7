"""Returns: worked numbers, and the incentive they set."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.reward.returns import discounted_max, discounted_sum, progress, returns_of

rewards = st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=6)
gammas = st.floats(0, 1)


@pytest.mark.parametrize(
    ("rewards_T", "gamma", "expected"),
    [
        ([1.0, 0.0, 2.0], 0.5, [1.5, 1.0, 2.0]),
        ([0.0, 0.0, 1.0], 1.0, [1.0, 1.0, 1.0]),
        ([0.3, 1.3], 0.0, [0.3, 1.3]),
        ([-1.0, 1.0], 0.5, [-0.5, 1.0]),
        ([], 0.4, []),
    ],
)
def test_discounted_sum_of_worked_examples(rewards_T, gamma, expected):
    np.testing.assert_allclose(discounted_sum(rewards_T, gamma), expected)


@pytest.mark.parametrize(
    ("rewards_T", "gamma", "expected"),
    [
        ([1.0, 0.0, 2.0], 0.5, [1.0, 1.0, 2.0]),
        ([0.0, 0.0, 3.0], 0.5, [0.75, 1.5, 3.0]),
        ([-1.0, 0.0], 0.5, [-1.0, 0.0]),
        ([-1.0, 2.0], 0.5, [0.0, 2.0]),
    ],
)
def test_discounted_max_of_worked_examples(rewards_T, gamma, expected):
    np.testing.assert_allclose(discounted_max(rewards_T, gamma), expected)


@given(rewards, gammas)
def test_both_rules_equal_their_formulas_written_out(rewards_T, gamma):
    terms = [[gamma**k * r for k, r in enumerate(rewards_T[t:])] for t in range(len(rewards_T))]
    np.testing.assert_allclose(discounted_sum(rewards_T, gamma), [sum(x) for x in terms], atol=1e-12)
    np.testing.assert_allclose(discounted_max(rewards_T, gamma), [max(x) for x in terms], atol=1e-12)


@given(rewards, gammas)
def test_the_last_turn_is_paid_its_own_reward(rewards_T, gamma):
    for kind in ("sum", "max"):
        assert returns_of(rewards_T, gamma, kind)[-1] == rewards_T[-1]


@given(
    num_turns=st.integers(2, 6), worth=st.floats(0.01, 3), gamma=gammas, kind=st.sampled_from(["sum", "max"])
)
def test_an_earlier_success_never_scores_less_than_a_later_one(num_turns, worth, gamma, kind):
    """The former project paid failing first more: 0.30 for success at turn 0, 0.487 at turn 3."""

    def first_return(success_at):
        # The kernel is handed in again on each later turn, which earns nothing.
        return returns_of([worth * (t == success_at) for t in range(num_turns)], gamma, kind)[0]

    scores = [first_return(t) for t in range(num_turns)]
    assert all(early >= late for early, late in itertools.pairwise(scores))


@given(rewards, gammas, st.sampled_from(["sum", "max"]))
def test_what_came_before_a_turn_does_not_change_its_return(rewards_T, gamma, kind):
    changed = [9.0, *rewards_T]
    np.testing.assert_allclose(returns_of(changed, gamma, kind)[1:], returns_of(rewards_T, gamma, kind))


def test_a_penalty_is_not_washed_away_by_the_next_turn():
    assert discounted_max([-0.5, 0.0, 0.0], 0.9)[0] == -0.5


def test_progress_pays_what_each_turn_adds_and_never_gives_a_penalty_back():
    assert progress([1.0, 1.0, 0.2, 1.5], [0.0] * 4) == pytest.approx([1.0, 0.0, -0.8, 1.3])
    assert progress([0.2, 1.0], [-0.5, 0.0]) == pytest.approx([-0.3, 0.8])


@given(rewards)
def test_undiscounted_progress_sums_to_the_worth_of_what_is_handed_in_last(worth_T):
    paid = progress(worth_T, [0.0] * len(worth_T))
    assert discounted_sum(paid, 1.0)[0] == pytest.approx(worth_T[-1], abs=1e-9)


@given(rewards, gammas, st.integers(0, 5))
def test_by_progress_keeping_a_kernel_is_never_worse_than_breaking_it(worth_T, gamma, at):
    """By absolute rewards it is: the same kernel again earns nothing, a broken one its format."""
    at = min(at, len(worth_T) - 1)
    broken = [min(worth, worth_T[at]) for worth in worth_T[at + 1 :]]
    kept = [worth_T[at]] * len(broken)

    def following(later):
        every = [*worth_T[: at + 1], *later]
        return discounted_sum(progress(every, [0.0] * len(every)), gamma)

    if kept:
        assert following(kept)[at + 1] >= following(broken)[at + 1] - 1e-9


@given(num_turns=st.integers(2, 6), worth=st.floats(0.01, 3), gamma=gammas)
def test_by_progress_an_earlier_success_that_is_kept_never_scores_less(num_turns, worth, gamma):
    def first_return(success_at):
        values = [worth * (t >= success_at) for t in range(num_turns)]
        return discounted_sum(progress(values, [0.0] * num_turns), gamma)[0]

    scores = [first_return(t) for t in range(num_turns)]
    assert all(early >= late - 1e-12 for early, late in itertools.pairwise(scores))
