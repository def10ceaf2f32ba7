"""The cold start: it teaches, it can be killed anywhere, and it leaves a policy that opens."""

import pytest
import torch

from kernel_core.config import ColdStartConfig, PolicyConfig
from kernel_core.errors import ConfigError
from kernel_core.learn.cold_start import cold_start, encode, starting_policy
from kernel_core.learn.conversations import Conversation
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.prompt import format_completion
from kernel_core.store import Store

POLICY = PolicyConfig(model="new", hidden_size=32, num_layers=1, num_heads=2, vocab_size=400, max_context=256)
CONFIG = ColdStartConfig(steps=16, batch_tokens=512, lr=3e-3, warmup=2)


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def made_up_conversations(count=120):
    """A lookup that can be learned: which constant belongs to which word."""
    words = ["relu", "gelu", "tanh", "silu"]
    return [
        Conversation(
            problem_id=f"made-up/{index}",
            kind="first",
            grade="fused",
            messages=(
                {"role": "user", "content": f"# problem {index}\n{words[index % 4]}\n# write ModelNew"},
            ),
            answer=format_completion(f"{words[index % 4]} it", f"x = {index % 4}\n"),
        )
        for index in range(count)
    ]


def fresh(conversations):
    return starting_policy(POLICY, conversations, seed=0)


def weights_of(policy):
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def rows_of(store):
    rows = list(store.lines("metrics.jsonl"))
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]


@pytest.fixture(scope="module")
def conversations():
    return made_up_conversations()


@pytest.fixture(scope="module")
def undisturbed(conversations, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("undisturbed"))
    policy = fresh(conversations)
    report = cold_start(policy, conversations, CONFIG, store)
    return store, policy, report


def test_the_loss_falls(undisturbed):
    store, _, report = undisturbed
    losses = [row["held_back_loss"] for row in store.lines("metrics.jsonl")]
    assert losses[-1] < 0.8 * losses[0]
    assert report.loss == pytest.approx(losses[-1], rel=1e-5)


def test_the_taught_policy_opens_from_its_folder(undisturbed):
    store, policy, _ = undisturbed
    opened = TorchPolicy.load(store.root, POLICY)
    assert torch.equal(weights_of(opened), weights_of(policy))
    assert opened.version == policy.version
    assert opened.version.startswith("cold-start-")
    assert not store.exists("checkpoints")


def test_rows_are_what_the_policy_reads_and_writes_in_a_rollout(conversations):
    policy = fresh(conversations)
    for conversation, row in zip(conversations, encode(policy, conversations), strict=True):
        assert row.prompt_ids.tolist() == policy.encode_messages(conversation.messages).tolist()
        assert row.answer_ids.tolist() == policy.encode_completion(conversation.answer).tolist()


@pytest.mark.parametrize("killed_at", [1, 7])
def test_a_killed_cold_start_goes_on_bit_for_bit(undisturbed, conversations, tmp_path, killed_at):
    def killer(label, done, total):
        if done == killed_at:
            raise Killed

    store = Store(tmp_path)
    with pytest.raises(Killed):
        cold_start(fresh(conversations), conversations, CONFIG, store, killer)
    policy = fresh(conversations)
    torch.manual_seed(999)
    report = cold_start(policy, conversations, CONFIG, store)

    expected_store, expected_policy, expected_report = undisturbed
    assert torch.equal(weights_of(policy), weights_of(expected_policy))
    assert rows_of(store) == rows_of(expected_store)
    assert report.model_dump(exclude={"seconds"}) == expected_report.model_dump(exclude={"seconds"})


def test_a_finished_cold_start_is_not_run_again(undisturbed, conversations):
    store, policy, report = undisturbed
    again = fresh(conversations)
    assert cold_start(again, conversations, CONFIG, store) == report
    assert torch.equal(weights_of(again), weights_of(policy))


def test_a_limit_of_minutes_ends_it(conversations, tmp_path):
    config = CONFIG.model_copy(update={"steps": 100_000, "minutes": 0.01})
    report = cold_start(fresh(conversations), conversations, config, Store(tmp_path))
    assert 0 < report.steps < 1000


def test_what_does_not_fit_the_context_is_left_out_and_counted(conversations, tmp_path):
    long = conversations[0].model_copy(update={"answer": "x = 1\n" * 400})
    config = CONFIG.model_copy(update={"steps": 1})
    report = cold_start(fresh(conversations), [*conversations, long], config, Store(tmp_path))
    assert (report.num_conversations, report.num_too_long) == (len(conversations), 1)


def test_nothing_that_fits_the_context_is_the_callers_mistake(conversations, tmp_path):
    policy = fresh(conversations)
    policy.config = policy.config.model_copy(update={"max_context": 8})
    with pytest.raises(ConfigError, match="no conversation fits"):
        cold_start(policy, conversations, CONFIG, Store(tmp_path))
