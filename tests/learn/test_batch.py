"""Turns as padded batches: nothing is lost, and padding changes nothing."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen3Config, Qwen3ForCausalLM

from kernel_core.learn.batch import TokenRow, collate, plan_batches
from kernel_core.learn.loss import token_logprobs


def ids(*values):
    return np.array(values, np.int32)


def tiny_model(seed=0):
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=37,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=64,
    )
    return Qwen3ForCausalLM(config).eval()


def random_rows(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        TokenRow(
            prompt_ids=rng.integers(1, 37, rng.integers(2, 12)).astype(np.int32),
            answer_ids=rng.integers(1, 37, rng.integers(1, 9)).astype(np.int32),
            advantage=float(rng.normal()),
            sampler_logprobs=None,
        )
        for _ in range(count)
    ]


def test_targets_and_masks_name_exactly_the_answers():
    rows = [TokenRow(ids(1, 2, 3), ids(4, 5)), TokenRow(ids(6, 7), ids(8))]
    batch = collate(rows, pad_id=0, device="cpu")
    assert batch.ids_B_T.tolist() == [[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]]
    assert batch.targets_B_C.tolist() == [[3, 4, 5], [8, 0, 0]]
    assert batch.mask_B_C.tolist() == [[0, 1, 1], [1, 0, 0]]
    assert batch.num_answer_tokens == 3


def test_the_samplers_logprobs_stand_beside_their_tokens():
    row = TokenRow(ids(1, 2), ids(3, 4), sampler_logprobs=np.array([-1.0, -2.0], np.float32))
    batch = collate([row, TokenRow(ids(1), ids(2))], pad_id=0, device="cpu")
    assert batch.sampler_logprobs_B_C.tolist() == [[0, -1, -2], [0, 0, 0]]


def test_a_row_has_the_same_logprobs_alone_and_in_a_padded_batch():
    model, rows = tiny_model(), random_rows(6)
    together = collate(rows, pad_id=0, device="cpu")
    with torch.no_grad():
        logprobs, _ = token_logprobs(together.logits(model), together.targets_B_C, 1.0)
        for index, row in enumerate(rows):
            alone = collate([row], pad_id=0, device="cpu")
            expected, _ = token_logprobs(alone.logits(model), alone.targets_B_C, 1.0)
            mine = logprobs[index][together.mask_B_C[index] > 0]
            torch.testing.assert_close(mine, expected[alone.mask_B_C > 0], atol=1e-5, rtol=1e-5)


def test_logprobs_are_those_of_the_sampling_temperature_read_off_the_whole_sequence():
    model, row = tiny_model(), random_rows(1)[0]
    batch = collate([row], pad_id=0, device="cpu")
    with torch.no_grad():
        found, entropy = token_logprobs(batch.logits(model), batch.targets_B_C, 0.7)
        logits = model(input_ids=batch.ids_B_T).logits[0]
    start = len(row.prompt_ids)
    for offset, token in enumerate(row.answer_ids):
        distribution = torch.softmax(logits[start + offset - 1].double() / 0.7, dim=-1)
        assert float(found[0, offset]) == pytest.approx(float(distribution[token].log()), abs=1e-5)
        expected_entropy = float(-(distribution * distribution.log()).sum())
        assert float(entropy[0, offset]) == pytest.approx(expected_entropy, abs=1e-5)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 1000))
def test_a_plan_holds_every_row_once_within_the_budget(lengths, budget):
    plan = plan_batches(lengths, budget)
    assert sorted(index for batch in plan for index in batch) == list(range(len(lengths)))
    for batch in plan:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget
    widths = [lengths[batch[0]] for batch in plan]
    assert widths == sorted(widths, reverse=True)
