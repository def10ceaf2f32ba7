"""A policy on a server learns as one in this process does; what a server cannot do is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError
from remote_in_torch import RemoteInTorch

from kernel_core.config import ColdStartConfig, MismatchConfig, PolicyConfig, TrainConfig
from kernel_core.config.model_kind import is_pretrained
from kernel_core.errors import ConfigError, SourceUnavailable, StaleWeights
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.cold_start.updater import open_updater
from kernel_core.learn.learner import open_learner
from kernel_core.learn.loop import Trainer
from kernel_core.policy.publish import Publisher
from kernel_core.policy.remote_model import Weighted
from kernel_core.policy.tinker_policy import TinkerPolicy, TinkerSampler
from kernel_core.policy.tinker_rows import scaled
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.progress import silent
from kernel_core.store import Store

ROWS = [
    TokenRow(
        np.arange(3, 9 + i, dtype=np.int32),
        np.arange(20, 26 + 2 * i, dtype=np.int32),
        advantage=(-1.0) ** i * (0.5 + i),
        conversation=i,
    )
    for i in range(4)
]


def there(policy):
    """The same policy in this process, as one on a server."""
    return policy.model_copy(update={"kind": "tinker", "lora_rank": 4})


@pytest.fixture
def remote(taught, train_config):
    config = train_config.policy.model_copy(update={"lora_rank": 4})
    model = RemoteInTorch(str(taught), config)
    named = there(config).model_copy(update={"model": str(taught)})
    return TinkerPolicy(model.trained.tokenizer, named, model, version="base")


@pytest.fixture
def config(train_config, taught):
    """The settings of a run on a server: temperature 1, adapters, no drawn names."""
    rollout = train_config.rollout
    sampling = rollout.sampling.model_copy(update={"temperature": 1.0})
    return train_config.model_copy(
        update={
            "policy": there(train_config.policy).model_copy(update={"model": str(taught)}),
            "rollout": rollout.model_copy(update={"sampling": sampling}),
            "mismatch": MismatchConfig(importance_cap=2.0),
            "max_grad_norm": 1e9,
        }
    )


def sampled(policy):
    """Rows that the policy itself drew, so that a sampler's log-probabilities stand beside them."""
    return [
        replace(row, sampler_logprobs=policy.logprobs(row.prompt_ids, row.answer_ids, 1.0) + 0.1 * (i - 1))
        for i, row in enumerate(ROWS)
    ]


@pytest.mark.parametrize("method", ["rl", "expert_iteration"])
def test_updates_and_reports_are_those_of_the_engine_in_this_process(
    remote, config, taught, train_config, method, tmp_path
):
    config = config.model_copy(update={"method": method})
    here = TorchPolicy.load(str(taught), train_config.policy.model_copy(update={"lora_rank": 4}))
    learners = open_learner(config, here, Store(tmp_path)), open_learner(config, remote, Store(tmp_path))
    for step in (1, 2, 3):
        rows = sampled(here)
        ours, theirs = (learner.update(rows, step, silent) for learner in learners)
        assert theirs.num_optimiser_steps == ours.num_optimiser_steps == 1
        for name in ("loss", "grad_norm", "importance_mean", "sampler_kl", "ratio_mean"):
            assert getattr(theirs, name) == pytest.approx(getattr(ours, name), rel=1e-3, abs=1e-6), name
        for row in rows:
            now = here.logprobs(row.prompt_ids, row.answer_ids, 1.0)
            np.testing.assert_allclose(remote.logprobs(row.prompt_ids, row.answer_ids, 1.0), now, atol=2e-3)
    assert not np.allclose(now, sampled(remote)[-1].sampler_logprobs)


def test_the_loss_of_a_cold_start_is_that_of_the_engine_in_this_process(
    remote, taught, train_config, tmp_path
):
    here = TorchPolicy.load(str(taught), train_config.policy.model_copy(update={"lora_rank": 4}))
    settings = ColdStartConfig(lr=2e-3, weight_decay=0.0)
    updaters = [open_updater(policy, settings, 4096, Store(tmp_path)) for policy in (here, remote)]
    with updaters[0].training():
        losses = [[float(updater.update(ROWS, 2e-3).loss) for _ in range(4)] for updater in updaters]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.exhaustive
def test_a_run_goes_on_from_what_the_server_keeps(remote, config, gym, tmp_path):
    trainer = Trainer(config, Store(tmp_path), remote, gym)
    reports = [trainer.step() for _ in range(2)]
    assert reports[1].update.num_rows > 0
    before = remote.logprobs(ROWS[0].prompt_ids, ROWS[0].answer_ids, 1.0)
    again = TinkerPolicy(remote.tokenizer, remote.config, remote.model, version="another process")
    remote.model.learn([], 1e-3, None)
    on = Trainer(config, Store(tmp_path), again, gym)
    assert on.step_number == 2
    assert again.version == trainer.policy.version
    np.testing.assert_array_equal(again.logprobs(ROWS[0].prompt_ids, ROWS[0].answer_ids, 1.0), before)
    on.step()
    assert on.done
    folder = Store(tmp_path).child("checkpoints/step-000003")
    assert folder.read_json("policy.json")["tinker"]["base"] == config.policy.model
    assert not folder.exists("adapters.safetensors")


@pytest.mark.exhaustive
@pytest.mark.parametrize("share", [0.6, 0.1])
def test_a_server_that_is_away_in_a_call_ends_the_step_and_nothing_is_learned_twice(
    remote, config, gym, tmp_path, share
):
    """The call that fails comes after this share of all calls."""
    config = config.model_copy(update={"rollout": config.rollout.model_copy(update={"turns": 1})})
    undisturbed = Store(tmp_path / "undisturbed")
    trainer = Trainer(config, undisturbed, remote, gym)
    start = remote.model.calls
    while not trainer.done:
        trainer.step()
    rewards = [row["reward/mean"] for row in undisturbed.lines("metrics.jsonl") if row["step"]]
    num_calls = remote.model.calls - start
    model = RemoteInTorch(config.policy.model, config.policy.model_copy(update={"kind": "torch"}))
    policy = TinkerPolicy(remote.tokenizer, remote.config, model, version="base")
    store = Store(tmp_path / "away")
    trainer, faults = Trainer(config, store, policy, gym), 0
    model.fail_at = int(share * num_calls)
    while not trainer.done:
        try:
            trainer.step()
        except SourceUnavailable:
            faults += 1
    assert faults == 1
    found = [row["reward/mean"] for row in store.lines("metrics.jsonl") if row["step"]]
    assert found == pytest.approx(rewards)


def test_a_server_that_keeps_sampling_old_weights_is_found_out(remote):
    publisher = Publisher(TinkerSampler(remote), remote, max_gap=10.0)
    assert publisher.publish().gap < 1e-6
    remote.model.publish = lambda name: None
    weights = [
        Weighted(
            row.prompt_ids,
            row.answer_ids,
            np.zeros(len(row.answer_ids), np.float32),
            np.ones(len(row.answer_ids), np.float32),
        )
        for row in ROWS
    ]
    remote.model.learn(weights, 1e-2, None)
    with pytest.raises(StaleWeights):
        publisher.publish()


def test_weights_are_scaled_by_how_the_server_reduces_its_loss():
    weights = np.array([0.5, -0.25], np.float32)
    assert scaled(weights, 10, 4, sums=True).tolist() == [0.5, -0.25]
    # A server that divides by the row's 10 tokens and the 4 rows makes the sum of it.
    assert (scaled(weights, 10, 4, sums=False) / 10 / 4).tolist() == [0.5, -0.25]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"policy": {"lora_rank": None}}, "lora_rank"),
        ({"sampler": {"kind": "copy"}}, "sampler.kind"),
        ({"learners": 2}, "learners"),
        ({"updates_per_step": 2}, "updates_per_step"),
        ({"kl_coefficient": 0.1}, "kl_coefficient"),
        ({"entropy_coefficient": 0.1}, "entropy_coefficient"),
        ({"rollout": {"sampling": {"temperature": 0.7}}}, "temperature"),
        ({"policy": {"model": "shipped"}}, "policy.model"),
    ],
)
def test_what_a_server_cannot_do_is_refused_when_settings_are_read(changes, named):
    policy = {"kind": "tinker", "model": "Qwen/Qwen3-8B", "lora_rank": 32} | changes.get("policy", {})
    with pytest.raises(ValidationError, match=named.replace(".", r"\.")):
        TrainConfig.model_validate({**changes, "policy": policy})


def test_settings_of_a_pretrained_model_and_of_a_foreign_sampler_are_taken():
    config = TrainConfig(policy=PolicyConfig(kind="tinker", model="Qwen/Qwen3-8B", lora_rank=32))
    assert (config.lr, config.rollout.template, config.mismatch.importance_cap) == (1e-5, "full", 2.0)


def test_peft_adapters_have_the_settings_of_the_model_that_they_name(taught, tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(taught)}))
    assert not is_pretrained(PolicyConfig(model=str(tmp_path)))
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "Qwen/Qwen3-8B"}))
    assert is_pretrained(PolicyConfig(model=str(tmp_path)))


def test_a_folder_on_a_server_does_not_open_in_this_process(remote, tmp_path, train_config):
    remote.save(str(tmp_path / "saved"))
    with pytest.raises(ConfigError, match=r"policy\.kind=tinker"):
        TorchPolicy.load(str(tmp_path / "saved"), train_config.policy)
    assert TinkerSampler(remote).version == "base"
