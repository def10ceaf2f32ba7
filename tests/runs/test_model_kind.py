"""Settings by kind of model: what a pretrained model gets where a setting was left out."""

import json

import pytest

from flows.presets import build_parameters, preset, presets
from kernel_core.config import EvaluateConfig, PipelineConfig, PolicyConfig, TrainConfig, suited
from kernel_core.config.model_kind import is_pretrained

CODER = {"model": "Qwen/Qwen2.5-Coder-0.5B-Instruct"}


def folder(path, **values):
    path.mkdir()
    for name, content in values.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return str(path)


def test_what_is_pretrained(tmp_path):
    own = folder(tmp_path / "own", config={"vocab_size": 2048})
    taken = folder(tmp_path / "taken", config={"vocab_size": 151_936})
    adapters = [folder(tmp_path / f"on-{i}", policy={"base": base}) for i, base in enumerate((own, taken))]
    for model, expected in [
        ("shipped", False),
        ("new", False),
        (own, False),
        (taken, True),
        (adapters[0], False),
        (adapters[1], True),
        (CODER["model"], True),
    ]:
        assert is_pretrained(PolicyConfig(model=model)) is expected
    assert is_pretrained(PolicyConfig(), weights=taken)
    assert not is_pretrained(PolicyConfig(**CODER), weights=own)


def test_our_own_policies_keep_the_defaults():
    config = TrainConfig()
    assert config == TrainConfig(policy=PolicyConfig(model="shipped"))
    assert (config.lr, config.cold_start.lr, config.cold_start.mistake_share) == (2e-4, 1.5e-3, 0.35)
    assert (config.rollout.template, config.rollout.prompt_budget) == ("auto", 1400)
    assert config.checkpoint_minutes is None and config.mismatch.importance_cap is None


@pytest.mark.parametrize(("rank", "rl", "taught"), [(None, 1e-6, 2e-5), (16, 1e-5, 2e-4)])
def test_a_pretrained_model_gets_settings_of_its_kind(rank, rl, taught):
    config = TrainConfig(policy={**CODER, "lora_rank": rank})
    assert (config.lr, config.cold_start.lr) == (rl, taught)
    shares = config.cold_start
    assert (shares.mistake_share, shares.naive_share, shares.lazy_share) == (0.0, 0.1, 0.0)
    assert (config.rollout.template, config.rollout.sampling.max_new_tokens) == ("full", 1536)
    assert config.rollout.prompt_budget >= 3000 + 600
    longest = config.rollout.prompt_budget + config.rollout.sampling.max_new_tokens
    assert config.policy.max_context == longest
    assert "rollout.template=full" in config.described() and f"lr={rl:g}" in config.described()


def test_what_is_set_stays():
    config = TrainConfig(
        policy=CODER | {"max_context": 3000},
        lr=3e-5,
        rollout={"template": "compact", "sampling": {"max_new_tokens": 1000}},
        cold_start={"mistake_share": 0.35},
    )
    assert (config.lr, config.cold_start.mistake_share, config.cold_start.naive_share) == (3e-5, 0.35, 0.1)
    assert (config.rollout.template, config.rollout.prompt_budget) == ("compact", 2000)
    assert config.policy.max_context == 3000


def test_a_config_that_is_read_back_is_the_same():
    config = TrainConfig(policy=CODER, sampler={"kind": "server", "endpoint": "http://x"})
    assert TrainConfig.model_validate(config.model_dump()) == config
    assert TrainConfig.model_validate(config.model_dump(exclude_unset=True)) == config


def test_a_server_is_corrected_unless_that_is_turned_off():
    server = {"kind": "server", "endpoint": "http://x"}
    assert TrainConfig(sampler=server).mismatch.importance_cap == 2.0
    assert TrainConfig(sampler=server, mismatch={"importance_cap": None}).mismatch.importance_cap is None
    assert TrainConfig(sampler=server, mismatch={"veto": 1e-4}).mismatch.importance_cap == 2.0


def test_the_prompt_names_the_gpu_that_is_predicted():
    assert EvaluateConfig(gym={"predict_gpu": "A100"}).rollout.gpu == "A100"
    assert EvaluateConfig(gym={"device": "cuda"}).rollout.gpu is None


def test_stages_that_ask_the_trained_policy_can_take_its_kind_over():
    config = PipelineConfig(train={"policy": CODER})
    policy, rollout = suited(config.train.policy, config.best_of_n.rollout)
    assert (rollout.template, rollout.turns) == ("full", 1)
    assert rollout.prompt_budget + rollout.sampling.max_new_tokens <= policy.max_context


def test_no_preset_of_a_pretrained_model_teaches_mistakes():
    for stage in ("train", "cold-start", "pipeline"):
        for name in presets(stage):
            config = build_parameters(stage, preset(stage, name))["config"]
            config = config.train if stage == "pipeline" else config
            if is_pretrained(config.policy):
                assert config.cold_start.mistake_share == config.cold_start.lazy_share == 0
                # All weights learn the form in a cold start; adapters are told it.
                assert config.rollout.template == ("compact" if config.cold_start.all_weights else "full")
