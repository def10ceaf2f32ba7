"""A real vLLM server: published adapters, ids and log-probabilities, and a kill in the middle."""

import numpy as np
import torch
from vllm_server import Served, needs_vllm

from kernel_core.config import PolicyConfig, SamplerConfig, TrainConfig
from kernel_core.policy.publish import Publisher
from kernel_core.policy.sampler import open_sampler
from kernel_core.policy.tiny_model import new_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store

CONFIG = PolicyConfig(hidden_size=128, num_layers=2, num_heads=4, vocab_size=330, max_context=512)
TEXTS = ["import triton\nimport triton.language as tl\n\n\nclass ModelNew:\n    pass\n"] * 3
PROMPTS = [[{"role": "user", "content": text}] for text in ("add", "softmax", "a sum over rows")]

pytestmark = needs_vllm


def test_a_vllm_server_writes_with_each_published_adapter_and_dies_without_a_loss(tmp_path):
    policy = new_policy(CONFIG, TEXTS, seed=0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(2.0)
    policy.save(str(tmp_path / "base"))
    lora = TorchPolicy.load(str(tmp_path / "base"), CONFIG.model_copy(update={"lora_rank": 8}))
    server = Served(tmp_path / "base", port=18123)
    try:
        settings = SamplerConfig(kind="server", endpoint=server.endpoint, max_gap=0.005)
        config = TrainConfig(policy=lora.config, sampler=settings)
        sampler = open_sampler(config, lora, Store(tmp_path))
        publisher = Publisher(sampler, lora, settings.max_gap)
        publisher.publish()
        for version in ("run@1", "run@2", "run@3"):
            with torch.no_grad():
                for parameter in lora.model.parameters():
                    if parameter.requires_grad:
                        parameter.add_(0.05 * torch.randn(parameter.shape))
            lora.set_version(version)
            publication = publisher.publish()
            assert publication.gap < 0.005 < publication.moved
            gaps = [
                np.abs(s.logprobs - lora.logprobs(s.prompt_ids, s.token_ids, 1.0)).mean()
                for s in sampler.sample(PROMPTS, temperature=1.0, max_new_tokens=40, seed=3)
            ]
            assert np.mean(gaps) < 0.005
        server.kill()
        server.start()
        again = sampler.sample(PROMPTS, temperature=1.0, max_new_tokens=40, seed=3)
        assert {sample.policy_version for sample in again} == {"run@3"}
    finally:
        server.kill()
