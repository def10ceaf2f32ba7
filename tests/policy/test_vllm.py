"""A real vLLM server: published adapters and weights, log-probabilities, and kills in the middle of work."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import torch
from real_vllm import ON_CPU, PYTHON, needs_vllm

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


def steep_policy():
    """Weights whose answers differ from token to token."""
    policy = new_policy(CONFIG, TEXTS, seed=0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(2.0)
    return policy


def moved(policy, version):
    """The policy after an update of everything that trains."""
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape))
    policy.set_version(version)


def gap_of(policy, samples):
    return np.mean(
        [np.abs(s.logprobs - policy.logprobs(s.prompt_ids, s.token_ids, 1.0)).mean() for s in samples]
    )


def test_a_vllm_server_writes_with_each_published_adapter_and_dies_without_a_loss(tmp_path, monkeypatch):
    for name, value in ON_CPU.items():
        monkeypatch.setenv(name, value)
    policy = steep_policy()
    policy.save(str(tmp_path / "base"))
    lora = TorchPolicy.load(str(tmp_path / "base"), CONFIG.model_copy(update={"lora_rank": 8}))
    settings = SamplerConfig(kind="vllm", python=PYTHON, max_gap=0.005)
    sampler = open_sampler(TrainConfig(policy=lora.config, sampler=settings), lora, Store(tmp_path))
    try:
        publisher = Publisher(sampler, lora, settings.max_gap)
        publisher.publish()
        for version in ("run@1", "run@2", "run@3"):
            moved(lora, version)
            publication = publisher.publish()
            assert publication.gap < 0.005 < publication.moved
            samples = sampler.sample(PROMPTS, temperature=1.0, max_new_tokens=40, seed=3)
            assert gap_of(lora, samples) < 0.005
        asked = [PROMPTS[i % 3] for i in range(200)]
        [server] = psutil.Process(sampler._server._place._process.pid).children()
        with ThreadPoolExecutor(1) as pool:
            again = pool.submit(sampler.sample, asked, temperature=1.0, max_new_tokens=400, seed=3)
            time.sleep(1.0)
            assert not again.done()
            server.send_signal(signal.SIGKILL)
            again = again.result()
        assert len(again) == 200 and {sample.policy_version for sample in again} == {"run@3"}
    finally:
        sampler.close()


def test_a_vllm_server_takes_all_weights_and_one_that_dies_meanwhile_comes_back_with_them(
    tmp_path, monkeypatch
):
    for name, value in ON_CPU.items():
        monkeypatch.setenv(name, value)
    policy = steep_policy()
    assert policy.model.config.tie_word_embeddings, "what vLLM's own reload leaves as it was"
    settings = SamplerConfig(kind="vllm", python=PYTHON, max_gap=0.005)
    sampler = open_sampler(TrainConfig(policy=policy.config, sampler=settings), policy, Store(tmp_path))
    try:
        publisher = Publisher(sampler, policy, settings.max_gap)
        publisher.publish()
        for version in ("run@1", "run@2", "run@3"):
            moved(policy, version)
            engine = engine_of(sampler)
            if version == "run@3":
                engine.suspend()
            with ThreadPoolExecutor(1) as pool:
                publishing = pool.submit(publisher.publish)
                if version == "run@3":
                    time.sleep(1.0)
                    assert not publishing.done(), "the weights are on their way"
                    engine.kill()
                publication = publishing.result()
            assert publication.gap < 0.005 < publication.moved
            samples = sampler.sample(PROMPTS, temperature=1.0, max_new_tokens=40, seed=3)
            assert gap_of(policy, samples) < 0.005
            assert {sample.policy_version for sample in samples} == {version}
            assert (engine_of(sampler).pid == engine.pid) == (version != "run@3"), "no start but that one"
    finally:
        sampler.close()


def engine_of(sampler):
    """The process that holds the weights, below the one that answers requests."""
    below = psutil.Process(sampler._server._place._process.pid).children(recursive=True)
    return next(process for process in below if "EngineCore" in "".join(process.cmdline()))
