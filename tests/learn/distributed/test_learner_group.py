"""Learners over gloo: the same update as one process alone, and state that any number goes on from."""

import threading

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.config import MismatchConfig, PolicyConfig, RolloutConfig, SamplingConfig, TrainConfig
from kernel_core.errors import WorkersLost
from kernel_core.learn import checkpoint
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.distributed.data_parallel import Share
from kernel_core.learn.distributed.learner_group import LearnerGroup
from kernel_core.learn.learner import Learner
from kernel_core.learn.saver import Saver
from kernel_core.policy.tiny_model import new_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.progress import silent
from kernel_core.store import Store

TEXTS = ["import triton\nimport triton.language as tl\n\n\nclass ModelNew:\n    pass\n"] * 3
CORRECTED = MismatchConfig(band=0.5, importance_cap=2.0)
POLICY = PolicyConfig(
    model="new", hidden_size=32, num_layers=2, num_heads=2, vocab_size=300, gradient_checkpointing=True
)


def config_of(learners, policy=POLICY, **changes):
    rollout = RolloutConfig(sampling=SamplingConfig(max_new_tokens=16))
    return TrainConfig(
        policy=policy, rollout=rollout, lr=1e-3, minibatch_tokens=256, learners=learners, **changes
    )


def rows_for(policy, seed, count=10):
    prompts = [[{"role": "user", "content": f"kernel {i}"}] for i in range(count)]
    samples = policy.sample(prompts, temperature=1.0, max_new_tokens=16, seed=seed)
    return [
        TokenRow(sample.prompt_ids, sample.token_ids, advantage, sample.logprobs)
        for sample, advantage in zip(samples, np.linspace(-1, 2, count).tolist(), strict=True)
    ]


def weights_of(policy):
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


def members_of(group):
    """The processes of the learners, in the order of their ranks."""
    watching = [psutil.Process(place._process.pid) for place in group._learners._places.each]
    return [process.children()[0] for process in watching]


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 8))
def test_shares_hold_every_row_once_and_are_equally_many(lengths, size):
    shares = [Share(rank, size).of(lengths, 128) for rank in range(size)]
    assert len({len(share) for share in shares}) == 1
    counted = sorted(row for share in shares for members, counts in share if counts for row in members)
    assert counted == list(range(len(lengths)))


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


def saved(group, store, step, policy):
    shards = group.save(store.child(checkpoint.folder_of(step)))
    checkpoint.draft(store, step, policy, None, {}, 2, shards=shards)()
    return store.child(checkpoint.folder_of(step))


def opened(config, store, seed=1):
    """A learner of new weights, as `open_learner` gives it, and its policy."""
    policy = new_policy(config.policy.model_copy(update={"lora_rank": None}), TEXTS, seed)
    if config.policy.lora_rank:
        policy.save(store.child("base"))
        policy = TorchPolicy.load(store.child("base"), config.policy)
    kind = LearnerGroup if config.learners > 1 else Learner
    return kind(config, policy, store), policy


@pytest.mark.parametrize(
    ("policy", "kl"),
    [
        (POLICY, 0.5),
        pytest.param(POLICY.model_copy(update={"lora_rank": 4}), 0.0, marks=pytest.mark.slow),
    ],
)
def test_two_learners_update_as_one_process_does(tmp_path, policy, kl):
    changes = {"policy": policy, "kl_coefficient": kl, "mismatch": CORRECTED}
    alone, policy_alone = opened(config_of(1, **changes), Store(tmp_path / "alone"))
    group, policy_shared = opened(config_of(2, **changes), Store(tmp_path / "group"))
    try:
        for learner in (alone, group):
            learner.begin()
        for step in (1, 2, 3):
            rows = rows_for(policy_alone, step)
            expected, report = (learner.update(rows, step, silent) for learner in (alone, group))
            torch.testing.assert_close(
                weights_of(policy_shared), weights_of(policy_alone), atol=2e-5, rtol=1e-4
            )
            for name in ("num_rows", "num_answer_tokens", "num_optimiser_steps"):
                assert getattr(report, name) == getattr(expected, name)
            measured = ("loss", "grad_norm", "entropy", "sampler_kl", "ratio_mean")
            for name in (*measured, *["reference_kl"] * (kl > 0)):
                assert getattr(report, name) == pytest.approx(getattr(expected, name), rel=1e-3, abs=1e-6)
    finally:
        group.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """One process after two steps, and again after a third; with the checkpoint between them."""
    store = Store(tmp_path_factory.mktemp("alone"))
    learner, policy = opened(config_of(1), store)
    steps = [rows_for(policy, step) for step in (1, 2, 3)]
    for step, rows in enumerate(steps[:2], 1):
        learner.update(rows, step, silent)
    Saver(store, background=False).save(2, policy, learner.optimiser, {}, keep=1)
    second = weights_of(policy).clone()
    learner.update(steps[2], 3, silent)
    return store.child(checkpoint.folder_of(2)), steps, second, weights_of(policy)


def near(policy, expected):
    torch.testing.assert_close(weights_of(policy), expected, atol=5e-5, rtol=1e-3)


def killed_within(group, rank, work):
    """Kill a learner while others wait for it within an update; it is stopped first, so that they do."""
    victim = members_of(group)[rank]
    victim.suspend()
    killing = threading.Timer(2.0, victim.kill)
    killing.start()
    result = work()
    killing.join()
    assert not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE
    return result


@pytest.mark.slow
def test_a_learner_killed_within_a_step_is_replaced_and_the_step_counts_once(tmp_path, undisturbed):
    """Two learners go on from a checkpoint of one process, and one process and three learners from theirs."""
    start, steps, second, third = undisturbed
    store = Store(tmp_path)
    group, policy = opened(config_of(2), store, seed=2)
    policy.take(start)
    try:
        group.on_restore(start)
        near(policy, second)
        first = group.update(steps[2], 3, silent)  # starts the learners, which read the checkpoint
        near(policy, third)
        assert first.num_optimiser_steps == 1
        members_of(group)[1].kill()
        with pytest.raises(WorkersLost, match=r"after 1 updates, .* from after 0"):
            group.update(steps[0], 4, silent)
        policy.take(start)
        group.on_restore(start)
        report = killed_within(group, 0, lambda: group.update(steps[2], 3, silent))
        assert report.num_optimiser_steps == 1 and report.loss == pytest.approx(first.loss)
        near(policy, third)
        folder = saved(group, store, 3, policy)
        killed_within(group, 1, lambda: group.update(steps[0], 4, silent))
        after = weights_of(policy).clone()
    finally:
        group.close()
    assert len(folder.names(f"trainer/{checkpoint.SHARDS}")) == 2
    alone, resumed = opened(config_of(1), store, seed=3)
    checkpoint.restore(folder, resumed, alone.optimiser)
    near(resumed, third)
    alone.update(steps[0], 4, silent)
    near(resumed, after)
    three, policy = opened(config_of(3), store, seed=2)
    policy.take(folder)
    try:
        three.on_restore(folder)
        three.update(steps[0], 4, silent)
        near(policy, after)
    finally:
        three.close()


@pytest.mark.slow
def test_a_learner_that_hangs_is_replaced_after_the_time_that_is_set(tmp_path, undisturbed):
    start, steps, _, third = undisturbed
    group, policy = opened(config_of(2, learner_timeout_s=30.0), Store(tmp_path), seed=2)
    policy.take(start)
    try:
        group.on_restore(start)
        group.save(Store(tmp_path))  # waits until there are learners
        members_of(group)[1].suspend()
        group.update(steps[2], 3, silent)
        near(policy, third)
    finally:
        group.close()
