"""One update: it raises what was good, lowers what was bad, and does not depend on how rows are batched."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, Qwen3Config

from kernel_core.config import MismatchConfig, PolicyConfig, RolloutConfig, SamplingConfig, TrainConfig
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.reference import hold, whole_model
from kernel_core.learn.update import new_optimiser, update, usual_norm
from kernel_core.policy.tiny_model import new_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store

TEXTS = ["import triton\nimport triton.language as tl\n\n\nclass ModelNew:\n    pass\n"] * 3
POLICY = PolicyConfig(kind="torch", model="new", hidden_size=32, num_layers=2, num_heads=2, vocab_size=300)


def config_of(**changes):
    rollout = RolloutConfig(sampling=SamplingConfig(max_new_tokens=16, temperature=0.8))
    return TrainConfig(policy=POLICY, rollout=rollout, **{"lr": 1e-3, "minibatch_tokens": 4096} | changes)


@pytest.fixture
def policy():
    return new_policy(POLICY, TEXTS, seed=1)


def sampled_rows(policy, advantages, temperature=0.8):
    prompts = [[{"role": "user", "content": f"kernel {i}"}] for i in range(len(advantages))]
    samples = policy.sample(prompts, temperature=temperature, max_new_tokens=16, seed=5)
    return [
        TokenRow(sample.prompt_ids, sample.token_ids, advantage, sample.logprobs)
        for sample, advantage in zip(samples, advantages, strict=True)
    ]


def logprob_of(policy, row):
    return float(policy.logprobs(row.prompt_ids, row.answer_ids, 0.8).sum())


def test_good_answers_become_likelier_and_bad_ones_less_likely(policy):
    rows = sampled_rows(policy, [1.0, -1.0])
    before = [logprob_of(policy, row) for row in rows]
    report = update(policy, new_optimiser(policy.model, lr=1e-3), rows, config_of())
    after = [logprob_of(policy, row) for row in rows]
    assert after[0] > before[0]
    assert after[1] < before[1]
    assert report.num_optimiser_steps == 1
    assert report.grad_norm > 0


def test_the_first_pass_is_on_policy_and_the_sampler_agrees_with_the_trainer(policy):
    report = update(
        policy, new_optimiser(policy.model, lr=1e-3), sampled_rows(policy, [1, -1, 2]), config_of()
    )
    assert (report.ratio_mean, report.ratio_max, report.clip_share) == (1.0, 1.0, 0.0)
    assert report.sampler_logprob_gap < 1e-4
    assert report.sampler_kl < 1e-8


def test_later_passes_move_away_and_are_clipped(policy):
    config = config_of(updates_per_step=4, lr=1e-2)
    report = update(policy, new_optimiser(policy.model, lr=1e-2), sampled_rows(policy, [1, -1, 2]), config)
    assert report.num_optimiser_steps == 4
    assert report.ratio_max > 1.0
    assert report.clip_share > 0.0


def test_how_rows_are_batched_does_not_change_the_step():
    weights = []
    for budget in (256, 100_000):
        policy = new_policy(POLICY, TEXTS, seed=1)
        rows = sampled_rows(policy, np.linspace(-1, 2, 24).tolist())
        optimiser = torch.optim.SGD(policy.model.parameters(), lr=1.0)
        update(policy, optimiser, rows, config_of(minibatch_tokens=budget, max_grad_norm=1e9))
        weights.append(torch.cat([p.detach().flatten() for p in policy.model.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], atol=1e-6, rtol=1e-4)


def test_turns_without_advantage_are_counted_and_cost_nothing(policy):
    rows = sampled_rows(policy, [0.0, 0.0, 1.0])
    report = update(policy, new_optimiser(policy.model, lr=1e-3), rows, config_of())
    assert (report.num_rows, report.num_skipped_rows) == (3, 2)
    assert report.num_answer_tokens == len(rows[2].answer_ids)
    assert report.num_tokens == len(rows[2])


def test_padding_is_not_counted_as_tokens(policy):
    rows = sampled_rows(policy, [1.0, -1.0])
    rows = [rows[0], replace(rows[1], prompt_ids=rows[1].prompt_ids[:3])]
    report = update(policy, new_optimiser(policy.model, lr=1e-3), rows, config_of())
    assert report.num_tokens == sum(map(len, rows))


def test_a_step_without_anything_to_learn_leaves_the_weights_alone(policy):
    before = [p.clone() for p in policy.model.parameters()]
    rows = sampled_rows(policy, [0.0, 0.0])
    report = update(policy, new_optimiser(policy.model, lr=1e-3), rows, config_of())
    assert report.num_optimiser_steps == 0
    assert (report.entropy, report.sampler_kl, report.grad_norm) == (None, None, None)
    assert all(torch.equal(x, y) for x, y in zip(before, policy.model.parameters(), strict=True))


def test_a_gradient_that_is_not_finite_changes_no_weight_and_is_counted(policy, caplog):
    before = [p.clone() for p in policy.model.parameters()]
    rows = sampled_rows(policy, [float("inf"), 1.0])
    report = update(policy, new_optimiser(policy.model, lr=1e-3), rows, config_of())
    assert (report.num_optimiser_steps, report.num_refused_steps) == (0, 1)
    assert all(torch.equal(x, y) for x, y in zip(before, policy.model.parameters(), strict=True))
    assert "not finite" in caplog.text


def test_the_kl_term_holds_the_policy_near_the_reference():
    moved = []
    for coefficient in (0.0, 50.0):
        policy = new_policy(POLICY, TEXTS, seed=1)
        reference = whole_model(new_policy(POLICY, TEXTS, seed=1).model)
        rows = sampled_rows(policy, [1.0, -1.0, 0.5])
        config = config_of(kl_coefficient=coefficient, updates_per_step=8)
        optimiser = torch.optim.SGD(policy.model.parameters(), lr=0.05)
        update(policy, optimiser, rows, config, reference=reference)
        moved.append(abs(logprob_of(policy, rows[0]) - float(rows[0].sampler_logprobs.sum())))
    assert moved[1] < moved[0]


def test_rejected_turns_are_counted_and_change_no_weight(policy):
    before = [p.clone() for p in policy.model.parameters()]
    rows = [replace(row, kept=False) for row in sampled_rows(policy, [1.0, -1.0])]
    report = update(policy, new_optimiser(policy.model, lr=1e-3), rows, config_of())
    assert (report.num_rejected_rows, report.num_optimiser_steps) == (2, 0)
    assert all(torch.equal(x, y) for x, y in zip(before, policy.model.parameters(), strict=True))


def test_a_gradient_many_times_as_long_as_usual_is_shortened(policy):
    rows = sampled_rows(policy, [1.0, -1.0])
    optimiser = new_optimiser(policy.model, lr=0.0)
    for _ in range(20):
        usual = update(policy, optimiser, rows, config_of()).grad_norm
    assert usual_norm(optimiser) == pytest.approx(usual, rel=1e-3)
    spike = [replace(row, advantage=100.0 * row.advantage) for row in rows]
    assert update(policy, optimiser, spike, config_of()).grad_norm == pytest.approx(100 * usual, rel=1e-3)
    # The spike counts as three times the usual length: v = 0.95 + 0.05 · 9.
    assert usual_norm(optimiser) / usual == pytest.approx((1 + 0.05 * 8 / (1 - 0.95**21)) ** 0.5, rel=0.01)


def test_a_limit_that_was_given_is_the_one_that_holds(policy):
    rows = sampled_rows(policy, [1.0, -1.0])
    optimiser = new_optimiser(policy.model, lr=0.0)
    norm = update(policy, optimiser, rows, config_of(max_grad_norm=1e-4)).grad_norm
    assert norm > 1e-3
    assert usual_norm(optimiser) == pytest.approx(1e-4, rel=0.01)


def test_the_room_for_answers_does_not_scale_the_gradient():
    norms = []
    for room in (16, 4096):
        policy = new_policy(POLICY, TEXTS, seed=1)
        rows = sampled_rows(policy, [1.0, -1.0])
        config = config_of()
        sampling = config.rollout.sampling.model_copy(update={"max_new_tokens": room})
        rollout = config.rollout.model_copy(update={"sampling": sampling})
        config = config.model_copy(update={"rollout": rollout})
        norms.append(update(policy, new_optimiser(policy.model, lr=1e-3), rows, config).grad_norm)
    assert norms[0] == norms[1] > 0


def test_under_lora_the_reference_is_the_adapters_that_training_began_with(tmp_path):
    """They take the place of the trained ones for a moment, and no second base is loaded."""
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(
        LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=300)
    ).save_pretrained(tmp_path)
    new_policy(POLICY, TEXTS, seed=1).tokenizer.save_pretrained(tmp_path)
    settings = POLICY.model_copy(update={"lora_rank": 4, "model": str(tmp_path)})
    policy = TorchPolicy.load(str(tmp_path), settings)
    rows = sampled_rows(policy, [1.0, -1.0])
    config = config_of(kl_coefficient=0.5)
    optimiser = new_optimiser(policy.model, lr=1e-2)
    free = config_of()
    update(policy, optimiser, rows, free)  # as a cold start moves them
    began = [logprob_of(policy, row) for row in rows]
    policy.save(str(tmp_path / "reference"))
    update(policy, optimiser, rows, free)
    moved = [logprob_of(policy, row) for row in rows]
    reference = hold(Store(tmp_path / "reference"), policy)
    with reference():
        assert [logprob_of(policy, row) for row in rows] == pytest.approx(began, abs=1e-4)
    assert [logprob_of(policy, row) for row in rows] == moved != began
    whole = whole_model(TorchPolicy.load(str(tmp_path / "reference"), settings).model)
    still = new_optimiser(policy.model, lr=0.0)
    ours, theirs = (update(policy, still, rows, config, held) for held in (reference, whole))
    assert ours.reference_kl == pytest.approx(theirs.reference_kl, rel=1e-5) and ours.reference_kl > 0
    assert ours.grad_norm == pytest.approx(theirs.grad_norm, rel=1e-4)


@pytest.mark.parametrize("aggregation", ["constant", "token", "turn"])
def test_what_is_left_out_does_not_scale_the_gradient_of_the_rest(aggregation):
    """Leaving a row out of the loss is the same as its term being 0."""
    norms = []
    for left_out in (False, True):
        policy = new_policy(POLICY, TEXTS, seed=1)
        rows = sampled_rows(policy, [1.0, -1.0, 0.0, 0.0, 0.0])
        rows = [replace(row, kept=not (left_out and row.advantage == 0.0)) for row in rows]
        config = config_of(aggregation=aggregation)
        norms.append(update(policy, new_optimiser(policy.model, lr=1e-3), rows, config).grad_norm)
    assert norms[0] == norms[1] > 0


def test_drift_is_measured_when_everything_is_rejected_for_it(policy):
    rows = sampled_rows(policy, [1.0, -1.0, 0.0])
    stale = [replace(row, sampler_logprobs=row.sampler_logprobs - 0.5) for row in rows]
    config = config_of(mismatch=MismatchConfig(band=0.001))
    report = update(policy, new_optimiser(policy.model, lr=1e-3), stale, config)
    assert (report.num_rejected_rows, report.num_optimiser_steps) == (3, 0)
    assert report.sampler_kl == pytest.approx(np.exp(0.5) - 1.5, rel=1e-3)
    assert report.sampler_logprob_gap == pytest.approx(0.5, rel=1e-3)


def test_a_sampler_that_agrees_is_neither_rejected_nor_weighted(policy):
    mismatch = MismatchConfig(band=0.001, veto=1e-4, importance_cap=2.0)
    rows = sampled_rows(policy, [1.0, -1.0, 0.0])
    report = update(policy, new_optimiser(policy.model, lr=1e-3), rows, config_of(mismatch=mismatch))
    assert (report.num_mismatched_rows, report.num_rejected_rows) == (0, 0)
    assert report.importance_mean == pytest.approx(1.0, abs=1e-5)
    assert report.mismatch_worst < 1e-5


def test_a_stale_sampler_is_rejected(policy):
    stale = [
        replace(row, sampler_logprobs=row.sampler_logprobs - 0.2 * (index == 1), conversation=index)
        for index, row in enumerate(sampled_rows(policy, [1.0, -1.0, 0.5]))
    ]
    config = config_of(mismatch=MismatchConfig(band=0.01))
    report = update(policy, new_optimiser(policy.model, lr=1e-3), stale, config)
    assert (report.num_mismatched_rows, report.num_rejected_rows) == (1, 1)
    assert report.mismatch_worst == pytest.approx(0.2, rel=1e-3)


@pytest.mark.parametrize("aggregation", ["constant", "token", "turn"])
def test_every_aggregation_moves_the_policy_the_right_way(policy, aggregation):
    rows = sampled_rows(policy, [1.0, -1.0])
    before = [logprob_of(policy, row) for row in rows]
    update(policy, new_optimiser(policy.model, lr=1e-3), rows, config_of(aggregation=aggregation))
    after = [logprob_of(policy, row) for row in rows]
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_gradient_checkpointing_changes_the_memory_and_not_the_step():
    weights = []
    for checkpointing in (False, True):
        policy = new_policy(POLICY, TEXTS, seed=1)
        rows = sampled_rows(policy, [1.0, -1.0, 0.5])
        config = config_of()
        config = config.model_copy(
            update={"policy": config.policy.model_copy(update={"gradient_checkpointing": checkpointing})}
        )
        calls = []
        for layer in policy.model.model.layers:
            layer.self_attn.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        update(policy, torch.optim.SGD(policy.model.parameters(), lr=0.1), rows, config)
        assert (len(calls) > len(policy.model.model.layers)) is checkpointing
        assert not any("forward" in vars(layer) for layer in policy.model.model.layers)
        weights.append(torch.cat([p.detach().flatten() for p in policy.model.parameters()]))
    assert torch.equal(weights[0], weights[1])


SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.mark.parametrize(
    "architecture",
    [
        Qwen3Config(**SMALL, num_key_value_heads=1, head_dim=16, vocab_size=300),
        LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=300),
        Gemma2Config(**SMALL, num_key_value_heads=1, head_dim=16, vocab_size=300),
    ],
    ids=lambda architecture: architecture.model_type,
)
def test_any_causal_model_on_disk_trains_with_lora(architecture, tmp_path):
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(architecture).save_pretrained(tmp_path)
    new_policy(POLICY, TEXTS, seed=1).tokenizer.save_pretrained(tmp_path)
    settings = POLICY.model_copy(update={"lora_rank": 4, "model": str(tmp_path), "decoding": "static"})
    policy = TorchPolicy.load(str(tmp_path), settings)
    rows = sampled_rows(policy, [1.0, -1.0])
    before = [logprob_of(policy, row) for row in rows]
    frozen = [p.clone() for p in policy.model.parameters() if not p.requires_grad]
    report = update(policy, new_optimiser(policy.model, lr=1e-2), rows, config_of())
    assert report.sampler_logprob_gap < 1e-3
    after = [logprob_of(policy, row) for row in rows]
    assert after[0] > before[0] and after[1] < before[1]
    still = [p for p in policy.model.parameters() if not p.requires_grad]
    assert all(torch.equal(x, y) for x, y in zip(frozen, still, strict=True))
    policy.save(str(tmp_path / "trained"))
    loaded = TorchPolicy.load(str(tmp_path / "trained"), settings)
    assert logprob_of(loaded, rows[0]) == pytest.approx(after[0], abs=1e-4)


@pytest.mark.parametrize(("advantages", "expected"), [([1.0, 1.0], 1.0), ([1.0, -1.0], -1.0)])
def test_halves_that_say_the_same_agree_and_opposite_ones_do_not(policy, advantages, expected):
    [row] = sampled_rows(policy, [1.0])
    rows = [replace(row, advantage=one, conversation=i) for i, one in enumerate(advantages)]
    report = update(policy, new_optimiser(policy.model, lr=1e-3), rows, config_of())
    assert report.agreement == pytest.approx(expected, abs=1e-3)


def test_comparing_halves_changes_no_update(policy):
    rows = sampled_rows(policy, [1.0, -1.0, 0.5, -0.5])
    other = new_policy(POLICY, TEXTS, seed=1)
    compared = update(
        policy,
        new_optimiser(policy.model, lr=1e-3),
        [replace(row, conversation=i) for i, row in enumerate(rows)],
        config_of(),
    )
    plain = update(other, new_optimiser(other.model, lr=1e-3), rows, config_of())
    assert plain.agreement is None
    assert compared.agreement is not None and abs(compared.agreement) < 1.0
    for one, two in zip(policy.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(one, two)
