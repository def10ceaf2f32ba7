"""Mismatch between sampler and trainer: worked numbers of rejection and of importance weights."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.config import MismatchConfig
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.mismatch import correct

ALL_OFF = MismatchConfig()


def rows_with(*ratios_of_rows, conversations=None):
    """Rows whose tokens have these ratios trainer/sampler, and the trainer's log-probabilities."""
    rows, ours = [], []
    for index, ratios in enumerate(ratios_of_rows):
        sampler = np.full(len(ratios), math.log(0.5), np.float32)
        rows.append(
            TokenRow(
                np.array([1], np.int32),
                np.arange(len(ratios), dtype=np.int32),
                advantage=1.0,
                sampler_logprobs=sampler,
                conversation=index if conversations is None else conversations[index],
            )
        )
        ours.append(sampler + np.log(np.array(ratios, np.float32)))
    return rows, ours


def kept(ratios, config, conversations=None):
    rows, ours = rows_with(*ratios, conversations=conversations)
    return [row.kept for row in correct(rows, ours, config).rows]


def test_the_band_is_on_the_geometric_mean_of_a_conversation():
    config = MismatchConfig(band=0.1)
    assert kept([[1.2, 1.0, 1.0]], config) == [True]  # 1.2 ** (1/3) = 1.063
    assert kept([[1.2, 1.2, 1.0]], config) == [False]  # 1.129
    assert kept([[0.8, 0.8, 1.0]], config) == [False]  # 0.862
    assert kept([[2.0, 0.5]], config) == [True]


def test_all_turns_of_a_conversation_share_its_mean():
    config = MismatchConfig(band=0.1)
    assert kept([[1.3], [1.0, 1.0, 1.0]], config, conversations=[0, 0]) == [True, True]
    assert kept([[1.3], [1.0, 1.0, 1.0]], config, conversations=[0, 1]) == [False, True]


def test_length_alone_rejects_nothing():
    assert kept([[1.0009] * 4000], MismatchConfig(band=0.001)) == [True]


def test_one_impossible_token_vetoes_its_conversation_or_its_turn():
    ratios, conversations = [[1.0, 1e-5], [1.0], [1.0]], [0, 0, 1]
    assert kept(ratios, MismatchConfig(veto=1e-4), conversations) == [False, False, True]
    assert kept(ratios, MismatchConfig(veto=1e-4, veto_scope="turn"), conversations) == [False, True, True]


def test_importance_weights_are_ratios_up_to_the_cap():
    rows, ours = rows_with([0.5, 1.0, 1.5, 30.0])
    (row,) = correct(rows, ours, MismatchConfig(importance_cap=2.0)).rows
    assert row.importance == pytest.approx([0.5, 1.0, 1.5, 2.0], rel=1e-5)


def test_importance_weights_correct_the_expectation_under_the_wrong_sampler():
    """Σ over tokens of π_sampler · ratio · f is Σ of π · f: exact while the cap is not reached."""
    sampler, ours, f = np.array([0.6, 0.4]), np.array([0.5, 0.5]), np.array([1.0, 3.0])
    rows, logprobs = rows_with(*[[r] for r in ours / sampler])
    weights = [row.importance[0] for row in correct(rows, logprobs, MismatchConfig(importance_cap=2.0)).rows]
    assert float((sampler * weights * f).sum()) == pytest.approx(float((ours * f).sum()), rel=1e-5)


def test_what_was_rejected_before_stays_rejected_and_is_not_counted_again():
    rows, ours = rows_with([5.0])
    rows = [TokenRow(row.prompt_ids, row.answer_ids, 1.0, row.sampler_logprobs, kept=False) for row in rows]
    result = correct(rows, ours, MismatchConfig(band=0.1))
    assert (result.rows[0].kept, result.num_rejected) == (False, 0)
    assert result.worst_mean == pytest.approx(math.log(5), rel=1e-5)


def test_answers_that_nobody_sampled_are_left_alone():
    row = TokenRow(np.array([1], np.int32), np.array([2], np.int32))
    result = correct([row], [np.array([-3.0], np.float32)], MismatchConfig(band=1e-3, importance_cap=2.0))
    assert result.rows[0].kept
    assert result.rows[0].importance == pytest.approx([1.0])


@given(st.lists(st.floats(0.9991, 1.0009), min_size=1, max_size=30))
def test_a_sampler_that_agrees_loses_nothing(ratios):
    assert kept([ratios], MismatchConfig(band=0.001, veto=1e-4)) == [True]
    assert kept([ratios], ALL_OFF) == [True]
