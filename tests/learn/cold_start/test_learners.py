"""A cold start by two learners over gloo: the updates of one process, a kill between them, and one within."""

import threading
from contextlib import closing

import psutil
import pytest
import torch

from kernel_core.config import ColdStartConfig, PolicyConfig, TrainConfig
from kernel_core.errors import WorkersLost
from kernel_core.learn import checkpoint
from kernel_core.learn.cold_start.dataset import Conversation
from kernel_core.learn.cold_start.sft import cold_start, encode, starting_policy
from kernel_core.learn.cold_start.updater import open_updater
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store

POLICY = PolicyConfig(model="new", hidden_size=32, num_layers=2, num_heads=2, vocab_size=300, max_context=256)
CONFIG = ColdStartConfig(steps=8, batch_tokens=512, lr=3e-3, warmup=2, shared=True)
TWO = TrainConfig(policy=POLICY, learners=2, kl_coefficient=0.5)
PASS = 256
"""Tokens at a time: an update has several passes, of learners as well."""


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@pytest.fixture(scope="module")
def conversations():
    return [
        Conversation(
            problem_id=f"made-up/{index}",
            kind="first",
            grade="fused",
            messages=({"role": "user", "content": f"# problem {index}\n" + "relu\n" * (index % 7)},),
            answer=f"x = {index % 4}\n" * (1 + index % 3),
        )
        for index in range(60)
    ]


def fresh(conversations, is_packed=True):
    policy = starting_policy(POLICY, conversations, seed=0)
    if not is_packed:  # it cannot read packed rows; the window is wider than any row
        for layer in policy.model.model.layers:
            layer.self_attn.sliding_window = 4096
    return policy


def taught(policy, conversations, folder, training=None, kill_at=None):
    """The report of a cold start, and its numbers of each step but the seconds."""

    def look(label, done, total):
        if done == kill_at:
            raise Killed

    report = cold_start(policy, conversations, CONFIG, Store(folder), look, PASS, training)
    rows = list(Store(folder).lines("metrics.jsonl"))
    return report, [[v for k, v in row.items() if k != "seconds"] for row in rows]


def weights_of(policy):
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def near(policy, expected):
    torch.testing.assert_close(weights_of(policy), weights_of(expected), atol=2e-5, rtol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_packed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_two_learners_teach_as_one_process_does(conversations, tmp_path, is_packed):
    alone, shared = fresh(conversations, is_packed), fresh(conversations, is_packed)
    expected, numbers = taught(alone, conversations, tmp_path / "alone")
    report, theirs = taught(shared, conversations, tmp_path / "shared", TWO)
    near(shared, alone)
    assert torch.equal(weights_of(TorchPolicy.load(str(tmp_path / "shared"), POLICY)), weights_of(shared))
    assert shared.version == alone.version
    assert len(theirs) == CONFIG.steps
    if is_packed:  # padding depends on which rows are read together
        assert report.num_tokens == expected.num_tokens and report.num_padding == 0
        torch.testing.assert_close(torch.tensor(theirs), torch.tensor(numbers), atol=1e-5, rtol=1e-5)
    assert report.loss == pytest.approx(expected.loss, abs=1e-5)


@pytest.mark.slow
def test_any_number_of_learners_goes_on_after_a_kill(conversations, tmp_path):
    alone, last = fresh(conversations), fresh(conversations)
    expected, numbers = taught(alone, conversations, tmp_path / "undisturbed")
    for kill_at, training in ((3, None), (5, TWO), (7, TWO)):
        with pytest.raises(Killed):
            taught(fresh(conversations), conversations, tmp_path / "killed", training, kill_at)
    report, theirs = taught(last, conversations, tmp_path / "killed")
    assert report.steps == expected.steps == CONFIG.steps
    torch.testing.assert_close(torch.tensor(theirs), torch.tensor(numbers), atol=1e-5, rtol=1e-5)
    near(last, alone)


def kill_within_an_update():
    """A timer that kills a learner while the other waits for it; it is stopped at once, so that it does."""
    learners = [
        one
        for one in psutil.Process().children(recursive=True)
        if "kernel_core.learn.distributed.member" in one.cmdline() and not one.children()
    ]
    assert len(learners) == 2
    learners[0].suspend()
    killing = threading.Timer(2.0, learners[0].kill)
    killing.start()
    return killing


@pytest.mark.slow
def test_a_learner_killed_within_an_update_is_replaced_at_a_checkpoint_and_told_after_it(
    conversations, tmp_path
):
    store = Store(tmp_path)
    alone, shared = fresh(conversations), fresh(conversations)
    rows = encode(alone, conversations)
    one, two = (
        open_updater(policy, CONFIG, PASS, store, training)
        for policy, training in ((alone, None), (shared, TWO))
    )
    with closing(two):
        for updater in (one, two):
            updater.update(rows[:20], 1e-3)
        two.fill()
        shards = two.save(store.child(checkpoint.folder_of(1)))
        checkpoint.draft(store, 1, shared, None, {}, 1, shards=shards)()
        killing = kill_within_an_update()
        updated = two.update(rows[20:40], 1e-3)
        killing.join()
        assert updated.loss == pytest.approx(float(one.update(rows[20:40], 1e-3).loss), abs=1e-5)
        two.fill()
        near(shared, alone)
        killing = kill_within_an_update()
        with pytest.raises(WorkersLost, match=r"after 2 updates.*from after 1; .* when it is called again"):
            two.update(rows[40:], 1e-3)
        killing.join()
