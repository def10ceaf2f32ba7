"""Logits in float32: the same sums, unrounded, so that sampler and trainer are nearer to each other."""

import numpy as np
import pytest
import torch

from kernel_core.config import PolicyConfig
from kernel_core.policy import decode
from kernel_core.policy.tiny_model import new_policy
from kernel_core.policy.torch_policy import uniforms
from kernel_core.policy.wide_head import wide, wide_logits

POLICY = PolicyConfig(model="new", hidden_size=64, num_layers=2, num_heads=2, vocab_size=300)
TEXTS = ["import triton\nimport triton.language as tl\n\n\nclass ModelNew:\n    pass\n"] * 3
PROMPTS = [[{"role": "user", "content": f"kernel {i}"}] for i in range(12)]


@pytest.fixture
def bfloat16_policy():
    """With a head of its own and logits as large as a trained model's."""
    policy = new_policy(POLICY, TEXTS, seed=1)
    torch.manual_seed(0)
    head = policy.model.get_output_embeddings()
    head.weight = torch.nn.Parameter(0.8 * torch.randn_like(head.weight))
    policy.model.to(torch.bfloat16)
    return policy


def read_narrow(model, prompt_ids, token_ids):
    """The trainer's reading with the model's own head."""
    ids = torch.from_numpy(np.concatenate([prompt_ids, token_ids]).astype(np.int64))[None]
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt_ids) - 1 : -1]
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    return logprobs.gather(1, ids[0, len(prompt_ids) :, None])[:, 0].numpy()


def test_the_gap_between_sampler_and_trainer_falls(bfloat16_policy):
    policy = bfloat16_policy
    samples = policy.sample(PROMPTS, temperature=1.0, max_new_tokens=40, seed=3)
    wide = np.concatenate(
        [np.abs(s.logprobs - policy.logprobs(s.prompt_ids, s.token_ids, 1.0)) for s in samples]
    )
    prompts = [policy.encode_messages(messages) for messages in PROMPTS]
    rows = decode.decode(
        policy.model,
        prompts,
        max_new=[40] * len(prompts),
        uniforms_B_T=uniforms(3, range(len(prompts)), 40),
        temperature=1.0,
        end_ids=policy.end_ids,
        pad_id=0,
    )
    narrow = np.concatenate(
        [
            np.abs(row.logprobs - read_narrow(policy.model, prompt, row.token_ids))
            for prompt, row in zip(prompts, rows, strict=True)
        ]
    )
    if not narrow.any():
        assert not wide.any()
        pytest.skip("products of this processor round alike in every shape, so that there is no gap")
    assert wide.mean() < 0.75 * narrow.mean()
    assert np.square(wide).mean() < 0.4 * np.square(narrow).mean()


def test_the_head_gives_float32_and_is_put_back(bfloat16_policy):
    model = bfloat16_policy.model
    ids = torch.arange(8)[None]
    with torch.no_grad():
        narrow = model(input_ids=ids).logits
        with wide_logits(model):
            wide = model(input_ids=ids).logits
        again = model(input_ids=ids).logits
    assert (narrow.dtype, wide.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(wide.bfloat16(), narrow) or (wide - narrow).abs().max() < 0.02 * wide.abs().max()
    assert torch.equal(again, narrow)


@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float32], ids=["bfloat16", "master weights"])
def test_its_gradients_are_those_of_the_product(weights):
    torch.manual_seed(0)
    head = torch.nn.Linear(16, 50, bias=True).to(weights)
    hidden = torch.randn(2, 5, 16, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16), wide(head):
        logits = head(hidden)
    exact = hidden.detach().double() @ head.weight.detach().bfloat16().double().T + head.bias.double()
    torch.testing.assert_close(logits.double(), exact, atol=1e-5, rtol=1e-5)
    slope = torch.randn_like(logits)
    logits.backward(slope)
    close = {"atol": 0.05, "rtol": 0.02, "check_dtype": False}
    torch.testing.assert_close(hidden.grad.float(), slope @ head.weight.detach().float(), **close)
    expected = slope.flatten(0, 1).T @ hidden.detach().float().flatten(0, 1)
    torch.testing.assert_close(head.weight.grad.float(), expected, **close)
    assert (hidden.grad.dtype, head.weight.grad.dtype) == (hidden.dtype, weights)


def test_a_model_in_float32_computes_what_it_did():
    policy = new_policy(POLICY, TEXTS, seed=1)
    ids = torch.arange(8)[None]
    with torch.no_grad():
        before = policy.model(input_ids=ids).logits
        with wide_logits(policy.model):
            assert torch.equal(policy.model(input_ids=ids).logits, before)
