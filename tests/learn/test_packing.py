"""Packed rows: the loss and the gradient of padded ones, and models that cannot be read so are told apart."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, Qwen2Config, Qwen3Config

from kernel_core.learn import answer_loss
from kernel_core.learn.answer_loss import floored, has_plain_head, packed_loss
from kernel_core.learn.batch import TokenRow, collate
from kernel_core.learn.decoder_layers import compiled, computed_again, decoder_layers
from kernel_core.learn.packing import can_pack, pack, packed_attention, plan_packs

SMALL = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def model_of(kind, **changes):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(kind(**SMALL | changes))


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    lengths = [(5, 9), (12, 3), (7, 1), (1, 4)]
    return [TokenRow(*(rng.integers(3, 300, n).astype(np.int32) for n in pair)) for pair in lengths]


def gradients_of(model, loss):
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def padded_loss(model, rows, floor=0.0):
    batch = collate(rows, 0, "cpu")
    losses = F.cross_entropy(batch.logits(model).flatten(0, 1), batch.targets_B_C.flatten(), reduction="none")
    return (floored(losses.view_as(batch.targets_B_C), floor) * batch.mask_B_C).sum()


@pytest.mark.parametrize("floor", [0.0, 5.7])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True}])
@pytest.mark.parametrize("kind", [Qwen2Config, Qwen3Config])
def test_packed_rows_give_the_loss_and_the_gradient_of_padded_ones(
    monkeypatch, rows, kind, changes, again, floor
):
    monkeypatch.setattr(answer_loss, "PART_BYTES", 4 * 300 * 5)
    model = model_of(kind, **changes)
    padded = padded_loss(model, rows, floor)
    expected = gradients_of(model, padded)
    with packed_attention(model), computed_again(model, again):
        packed = packed_loss(model, pack(rows, "cpu"), floor)
        gradients = gradients_of(model, packed)
    torch.testing.assert_close(packed, padded, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients, expected, rtol=1e-5, atol=1e-5)


def test_tokens_up_to_the_floor_keep_their_loss_and_lose_their_gradient():
    logits = torch.tensor([[4.0, 0.0], [0.0, 1.0]], requires_grad=True)
    losses = F.cross_entropy(logits, torch.tensor([0, 0]), reduction="none")
    learned = floored(losses, 0.5)
    learned.sum().backward()
    assert torch.equal(learned, losses) and losses[0] < 0.5 < losses[1]
    assert not logits.grad[0].any() and torch.allclose(
        logits.grad[1], torch.tensor([-0.7311, 0.7311]), atol=1e-4
    )


def test_with_adapters_too(rows):
    model = get_peft_model(model_of(Qwen2Config), LoraConfig(r=2, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    padded = padded_loss(model, rows)
    expected = gradients_of(model, padded)
    with packed_attention(model):
        packed = packed_loss(model, pack(rows, "cpu"))
        gradients = gradients_of(model, packed)
    assert can_pack(model) and has_plain_head(model)
    torch.testing.assert_close(packed, padded, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("again", [False, True])
def test_compiled_layers_give_the_same_gradient_at_other_lengths(rows, again):
    model = model_of(Qwen2Config)
    parts = [rows, rows[1:]]
    expected = [gradients_of(model, padded_loss(model, part)) for part in parts]
    with packed_attention(model), compiled(model, True):
        for part, gradients in zip(parts, expected, strict=True):
            with computed_again(model, again):
                learned = gradients_of(model, packed_loss(model, pack(part, "cpu")))
            torch.testing.assert_close(learned, gradients, rtol=1e-4, atol=1e-5)
    assert not any("forward" in vars(layer) for layer in decoder_layers(model))


def test_a_loss_that_teaches_nothing_is_the_same(rows):
    model = model_of(Qwen3Config)
    with packed_attention(model):
        learned = packed_loss(model, pack(rows, "cpu"))
        with torch.no_grad():
            assert packed_loss(model, pack(rows, "cpu")) == learned


def test_other_attention_comes_back():
    model = model_of(Qwen3Config)
    before = model.config._attn_implementation
    assert can_pack(model)
    assert model.config._attn_implementation == before != "packed_rows"


@pytest.mark.parametrize(
    "config",
    [
        Gemma2Config(**SMALL),
        Qwen3Config(**SMALL, use_sliding_window=True, sliding_window=4, max_window_layers=0),
    ],
)
def test_models_with_other_attention_keep_padded_rows(config):
    assert not can_pack(AutoModelForCausalLM.from_config(config))


def test_learned_positions_begin_anew_in_every_row():
    assert can_pack(
        AutoModelForCausalLM.from_config(GPT2Config(vocab_size=300, n_embd=32, n_layer=1, n_head=2))
    )


def test_a_head_that_does_more_than_a_product_is_no_plain_one():
    model = model_of(Gemma2Config, final_logit_softcapping=3.0)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(50)
    assert not has_plain_head(model) and has_plain_head(model_of(Qwen2Config))


def test_packs_hold_rows_in_their_order_within_the_budget():
    assert plan_packs([3, 4, 5, 20, 1, 1], 8) == [[0, 1], [2], [3], [4, 5]]
    assert plan_packs([], 8) == []
