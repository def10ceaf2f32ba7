"""Two processes over gloo: the same update as one alone, and state that any number goes on from."""

import pickle
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.config import MismatchConfig, PolicyConfig, RolloutConfig, SamplingConfig, TrainConfig
from kernel_core.learn import checkpoint
from kernel_core.learn.batch import Row
from kernel_core.learn.distributed.data_parallel import Share
from kernel_core.learn.distributed.learner_group import Team
from kernel_core.learn.distributed.row_arrays import Parcel
from kernel_core.learn.reference import HeldModel
from kernel_core.learn.update import new_optimiser, update
from kernel_core.policy.tiny_model import new_policy
from kernel_core.store import Store

TEXTS = ["import triton\nimport triton.language as tl\n\n\nclass ModelNew:\n    pass\n"] * 3
CORRECTED = MismatchConfig(band=0.5, importance_cap=2.0)
POLICY = PolicyConfig(model="new", hidden_size=32, num_layers=2, num_heads=2, vocab_size=300)


def config_of(**changes):
    rollout = RolloutConfig(sampling=SamplingConfig(max_new_tokens=16))
    return TrainConfig(policy=POLICY, rollout=rollout, lr=1e-3, minibatch_tokens=256, **changes)


def rows_for(policy, seed):
    prompts = [[{"role": "user", "content": f"kernel {i}"}] for i in range(10)]
    samples = policy.sample(prompts, temperature=1.0, max_new_tokens=16, seed=seed)
    return [
        Row(sample.prompt_ids, sample.token_ids, advantage, sample.logprobs)
        for sample, advantage in zip(samples, np.linspace(-1, 2, 10).tolist(), strict=True)
    ]


def weights_of(policy):
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 8))
def test_shares_hold_every_row_once_and_are_equally_many(lengths, size):
    shares = [Share(rank, size).of(lengths, 128) for rank in range(size)]
    assert len({len(share) for share in shares}) == 1
    counted = sorted(row for share in shares for members, counts in share if counts for row in members)
    assert counted == list(range(len(lengths)))


@st.composite
def row(draw):
    prompt, answer = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    numbers = st.none() | st.just(np.linspace(-1, 0, answer, dtype=np.float32))
    return Row(
        np.arange(prompt, dtype=np.int32),
        np.arange(10, 10 + answer, dtype=np.int32),
        draw(st.floats(-2, 2)),
        draw(numbers),
        conversation=draw(st.integers(0, 9)),
        kept=draw(st.booleans()),
        importance=draw(numbers),
    )


@given(st.lists(row(), max_size=6))
def test_rows_arrive_as_they_were_sent(rows):
    arrived = pickle.loads(pickle.dumps(Parcel.wrap(rows))).unwrap()
    assert len(arrived) == len(rows)
    for one, other in zip(arrived, rows, strict=True):
        for field in fields(Row):
            sent, got = getattr(other, field.name), getattr(one, field.name)
            assert type(got) is type(sent)
            if isinstance(sent, np.ndarray):
                assert got.dtype == sent.dtype
                assert got.tolist() == sent.tolist()
            else:
                assert got == sent


def costs_of(lengths, size, budget):
    """Of each process's batches, the tokens, padding included."""
    return [
        [len(members) * max(lengths[row] for row in members) for members, _ in share]
        for share in (Share(rank, size).of(lengths, budget) for rank in range(size))
    ]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=100), st.integers(1, 8))
def test_shares_keep_the_budget_and_need_no_more_rounds_than_it_does(lengths, size):
    costs = costs_of(lengths, size, 128)
    assert all(tokens <= 128 for share in costs for tokens in share)
    assert len(costs[0]) == -(-len(costs_of(lengths, 1, 128)[0]) // size)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_shares_of_a_step_cost_about_the_same(size):
    lengths = np.random.default_rng(0).integers(500, 850, 1024).tolist()
    costs = [sum(share) for share in costs_of(lengths, size, 65_536)]
    assert max(costs) <= 1.06 * sum(lengths) / size, costs


@pytest.mark.slow
@pytest.mark.parametrize(("kl", "has_copy"), [(0.0, True), (0.5, True), (0.0, False)])
def test_two_processes_update_as_one_does_and_one_goes_on_from_their_checkpoint(tmp_path, kl, has_copy):
    alone, shared = (new_policy(POLICY, TEXTS, seed=1) for _ in range(2))
    reference = new_policy(POLICY, TEXTS, seed=3)
    first, second = rows_for(alone, 5), rows_for(alone, 6)
    optimisers = [new_optimiser(policy.model, 1e-3) for policy in (alone, shared)]
    config = config_of(learners=2, kl_coefficient=kl, mismatch=CORRECTED)
    team = Team(config, shared, optimisers[1], has_copy)
    try:
        reference.save(str(tmp_path / "reference"))
        team.hold(str(tmp_path / "reference"))
        for rows in (first, second):
            expected = update(
                alone,
                optimisers[0],
                rows,
                config_of(kl_coefficient=kl, mismatch=CORRECTED),
                HeldModel(reference.model),
            )
            report = team.update(rows, 1e-3)
            torch.testing.assert_close(weights_of(shared), weights_of(alone), atol=2e-5, rtol=1e-4)
            for name in ("num_rows", "num_answer_tokens", "num_optimiser_steps"):
                assert getattr(report, name) == getattr(expected, name)
            assert (report.reference_kl is not None) == (kl > 0)
            measured = ("loss", "grad_norm", "entropy", "sampler_kl", "ratio_mean")
            for name in (*measured, *["reference_kl"] * (kl > 0)):
                assert getattr(report, name) == pytest.approx(getattr(expected, name), rel=1e-3, abs=1e-6)
        team.give_moments()
        checkpoint.save(Store(tmp_path), 2, shared, optimisers[1], {}, keep=1)
    finally:
        team.close()
    resumed = new_policy(POLICY, TEXTS, seed=2)
    optimiser = new_optimiser(resumed.model, 1e-3)
    checkpoint.restore(Store(tmp_path).child(checkpoint.folder_of(2)), resumed, optimiser)
    assert torch.equal(weights_of(resumed), weights_of(shared))
    for policy, opt in ((resumed, optimiser), (alone, optimisers[0])):
        update(policy, opt, first, config_of())
    torch.testing.assert_close(weights_of(resumed), weights_of(alone), atol=5e-5, rtol=1e-3)
