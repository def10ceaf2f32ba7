"""The head applied in parts: the same values and gradients, and only where it is the whole of the head."""

import functools

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, Qwen3Config

from kernel_core.learn import chunked_logits as head
from kernel_core.learn.batch import TokenRow, collate
from kernel_core.learn.distributed.data_parallel import shard
from kernel_core.learn.loss import token_logprobs

SMALL = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
LOOK = functools.partial(token_logprobs, temperature=0.7, entropy_gradient=True)


def model_of(kind, **changes):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(kind(**SMALL, **changes)).double()


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    lengths = [(5, 9), (12, 3), (7, 1)]
    return collate(
        [TokenRow(*(rng.integers(3, 300, n).astype(np.int32) for n in pair)) for pair in lengths], 0, "cpu"
    )


def values_and_gradients(model, batch, look=LOOK):
    model.zero_grad()
    logprobs, entropy = head.by_token(model, batch, look)
    loss = ((2 * logprobs + entropy) * batch.mask_B_C).sum()
    loss.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    return logprobs * batch.mask_B_C, entropy * batch.mask_B_C, gradients


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True}])
@pytest.mark.parametrize("kind", [LlamaConfig, Qwen3Config])
def test_parts_give_what_the_whole_gives(monkeypatch, batch, kind, changes):
    model = model_of(kind, **changes)
    whole = values_and_gradients(model, batch)
    monkeypatch.setattr(head, "LOGITS_BYTES", 0)
    monkeypatch.setattr(head, "PART_BYTES", 4 * 300 * 5)
    widths, read = [], []
    model.get_output_embeddings().register_forward_hook(lambda _m, _i, out: widths.append(out.shape[-1]))

    def look(logits, targets):
        read.append(logits.shape)
        return LOOK(logits, targets)

    parts = values_and_gradients(model, batch, look)
    assert widths[-1] == 2  # two values a token in place of its logits
    assert max(shape[0] for shape in read) == 5
    torch.testing.assert_close(parts, whole, rtol=1e-10, atol=1e-12)


@pytest.fixture
def group_of_one():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("tied", [False, True])
def test_in_a_sharded_model_as_well(monkeypatch, batch, group_of_one, tied):
    model = model_of(Qwen3Config, tie_word_embeddings=tied).float()
    *whole, gradients = values_and_gradients(model, batch)
    shard(model, torch.float32)
    monkeypatch.setattr(head, "LOGITS_BYTES", 0)
    monkeypatch.setattr(head, "PART_BYTES", 4 * 300 * 5)
    read = []

    def look(logits, targets):
        read.append(logits.shape)
        return LOOK(logits, targets)

    *parts, sharded = values_and_gradients(model, batch, look)
    assert max(shape[0] for shape in read) == 5
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close([gradient.full_tensor() for gradient in sharded], gradients)


def test_with_lora_too(monkeypatch, batch):
    model = get_peft_model(model_of(Qwen3Config), LoraConfig(r=2, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    whole = head.by_token(model, batch, LOOK)
    monkeypatch.setattr(head, "LOGITS_BYTES", 0)
    parts = head.by_token(model, batch, LOOK)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one * batch.mask_B_C, other, rtol=1e-10, atol=1e-12)


def test_a_model_that_caps_its_logits_is_left_alone(monkeypatch, batch):
    model = model_of(Gemma2Config, final_logit_softcapping=3.0)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(50)
    whole = values_and_gradients(model, batch)
    monkeypatch.setattr(head, "LOGITS_BYTES", 0)
    torch.testing.assert_close(values_and_gradients(model, batch), whole, rtol=0, atol=0)
