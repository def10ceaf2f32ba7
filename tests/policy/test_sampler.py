"""Samplers get the weights that were published, and one that did not is found out."""

import signal
import subprocess
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from adapter_server import Server, handler_of
from tiny_policy import CONFIG, PROMPTS, SETTINGS, TEXTS

from kernel_core.config import SamplerConfig, TrainConfig
from kernel_core.errors import ConfigError, SourceUnavailable, StaleWeights
from kernel_core.policy.publish import Publisher
from kernel_core.policy.sampler import CopySampler, open_sampler
from kernel_core.policy.tiny_model import new_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The folder of a model with random weights."""
    policy = new_policy(CONFIG, TEXTS, seed=0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(2.0)
    folder = tmp_path_factory.mktemp("base")
    policy.save(str(folder))
    return folder


@pytest.fixture
def policy(base):
    return TorchPolicy.load(str(base), CONFIG)


@pytest.fixture
def lora(base):
    return TorchPolicy.load(str(base), CONFIG.model_copy(update={"lora_rank": 4}))


def learn_something(policy, version, by=0.05):
    """Stands for an update: every weight that trains moves."""
    generator = torch.Generator().manual_seed(len(version))
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(by * torch.randn(parameter.shape, generator=generator))
    policy.set_version(version)


def config_of(kind, policy, **changes):
    return TrainConfig(policy=policy.config, sampler=SamplerConfig(kind=kind, **changes))


@pytest.mark.parametrize("decoding", ["growing", "static"])
def test_a_copy_writes_with_old_weights_until_new_ones_are_published(policy, tmp_path, decoding):
    policy.config = policy.config.model_copy(update={"decoding": decoding})
    sampler = open_sampler(config_of("copy", policy), policy, Store(tmp_path))
    before = sampler.sample(PROMPTS, **SETTINGS)
    learn_something(policy, "v1")
    still = sampler.sample(PROMPTS, **SETTINGS)
    assert [s.token_ids.tolist() for s in still] == [s.token_ids.tolist() for s in before]
    sampler.publish(policy)
    for sample in sampler.sample(PROMPTS, **SETTINGS):
        again = policy.logprobs(sample.prompt_ids, sample.token_ids, 1.0)
        np.testing.assert_allclose(sample.logprobs, again, atol=1e-4)
        assert sample.policy_version == "v1"


def test_a_copy_in_bfloat16_is_near_and_shares_frozen_weights(lora):
    lora.config = lora.config.model_copy(update={"dtype": "bfloat16"})
    sampler = CopySampler(lora)
    theirs = {p.data_ptr() for p in lora.model.parameters() if not p.requires_grad}
    ours = list(sampler._policy.model.parameters())
    assert theirs <= {p.data_ptr() for p in ours}
    assert any(p.dtype == torch.bfloat16 for p in ours)


def test_a_copy_under_lora_follows_its_adapters(lora):
    sampler = CopySampler(lora)
    learn_something(lora, "v1", by=0.2)
    publication = Publisher(sampler, lora, max_gap=0.01).publish()
    assert publication.gap < 1e-5


def test_publishing_says_how_far_the_weights_moved(policy):
    publisher = Publisher(CopySampler(policy), policy, max_gap=0.01)
    assert publisher.publish().moved == 0.0
    learn_something(policy, "v1")
    publication = publisher.publish()
    assert publication.gap < 1e-5 < publication.moved


class Forgetful(CopySampler):
    """A sampler that says it has new weights and keeps part of the old ones: the fault seen in servers."""

    def publish(self, policy):
        tied = policy.model.get_input_embeddings().weight
        kept = self._policy.model.get_input_embeddings().weight.clone()
        super().publish(policy)
        if self._policy.version != "v0":
            with torch.no_grad():
                self._policy.model.get_input_embeddings().weight.copy_(kept)
        assert tied is not None


@pytest.mark.parametrize("by", [0.5, 0.003])
def test_weights_that_did_not_arrive_are_found_out_even_after_a_small_step(policy, by):
    policy.set_version("v0")
    publisher = Publisher(Forgetful(policy), policy, max_gap=0.1)
    publisher.publish()
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.add_(
            by * torch.randn(policy.model.get_input_embeddings().weight.shape)
        )
    policy.set_version("v1")
    with pytest.raises(StaleWeights, match="does not have the weights of v1"):
        publisher.publish()


class Noisy(CopySampler):
    """A sampler with coarse arithmetic; a stuck one says that it has new weights and keeps the old."""

    NOISE = 0.003

    def __init__(self, policy, stuck):
        super().__init__(policy)
        self.stuck, self.generator = stuck, np.random.default_rng(0)

    def publish(self, policy):
        if self.stuck:
            self._policy.set_version(policy.version)
        else:
            super().publish(policy)

    def logprobs(self, *text):
        exact = super().logprobs(*text)
        return exact + self.generator.normal(0, self.NOISE, len(exact)).astype(np.float32)


@pytest.mark.parametrize("stuck", [True, False])
def test_updates_too_small_to_tell_from_noise_add_up_until_a_stuck_sampler_is_found_out(policy, stuck):
    generator = torch.Generator().manual_seed(0)
    towards = [torch.randn(p.shape, generator=generator) for p in policy.model.parameters()]
    publisher = Publisher(Noisy(policy, stuck), policy, max_gap=0.1)
    publisher.publish()
    moved = []
    try:
        for step in range(1, 41):
            with torch.no_grad():
                for parameter, direction in zip(policy.model.parameters(), towards, strict=True):
                    parameter.add_(2e-5 * direction)
            policy.set_version(f"v{step}")
            moved.append(publisher.publish().moved)
    except StaleWeights as error:
        assert stuck and "that arrived" in str(error)
    assert max(moved) < Noisy.NOISE  # no update could be told by itself
    assert len(moved) < 10 if stuck else len(moved) == 40


def test_a_server_needs_adapters_and_an_endpoint(policy, lora, tmp_path):
    with pytest.raises(ConfigError, match="set policy"):
        open_sampler(config_of("server", policy), policy, Store(tmp_path))
    with pytest.raises(ConfigError, match="needs sampler"):
        open_sampler(config_of("server", lora), lora, Store(tmp_path))


@pytest.fixture
def endpoint(base):
    """The server in a thread of this process, which nobody kills."""
    listening = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(Server(base, stale=False)))
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_address[1]}/v1"
    listening.shutdown()
    listening.server_close()


def test_a_step_repeated_after_a_kill_is_written_with_its_own_weights(endpoint, lora, tmp_path):
    config = config_of("server", lora, endpoint=endpoint, max_gap=0.005)
    for attempt in ("killed", "another"):
        sampler = open_sampler(config, lora, Store(tmp_path))  # as in a new process
        learn_something(lora, attempt, by=0.1)
        lora.set_version("run@5")
        assert Publisher(sampler, lora, config.sampler.max_gap).publish().gap < 1e-4


def test_a_server_is_told_to_leave_its_filters_off(endpoint, lora, tmp_path):
    sampler = open_sampler(config_of("server", lora, endpoint=endpoint), lora, Store(tmp_path))
    sampler.publish(lora)
    for sample in sampler.sample(PROMPTS, **SETTINGS):
        again = lora.logprobs(sample.prompt_ids, sample.token_ids, 1.0)
        np.testing.assert_allclose(sample.logprobs, again, atol=1e-4)


def test_the_oldest_adapters_are_removed_from_the_disk(endpoint, lora, tmp_path):
    sampler = open_sampler(config_of("server", lora, endpoint=endpoint), lora, Store(tmp_path))
    for step in range(8, 12):
        lora.set_version(f"run@{step}")
        sampler.publish(lora)
    left = [name.rsplit("-", 1)[0] for name in Store(tmp_path).child("adapters").names()]
    assert sorted(left) == ["run-10", "run-11", "run-9"]


class Served:
    """The server in a process of its own, which can be killed and started again on the same port."""

    def __init__(self, base, *options):
        self.base, self.options, self.port = base, options, "0"
        self.start()

    def start(self):
        script = Path(__file__).with_name("adapter_server.py")
        command = [sys.executable, str(script), str(self.base), self.port, *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = self.process.stdout.readline().strip()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}/v1"


@pytest.fixture
def serve(base):
    started = []

    def start(*options):
        started.append(Served(base, *options))
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.mark.slow
def test_a_server_writes_with_each_published_adapter_and_dies_without_a_loss(serve, lora, tmp_path):
    server = serve()
    config = config_of("server", lora, endpoint=server.endpoint, max_gap=0.005)
    sampler = open_sampler(config, lora, Store(tmp_path))
    publisher = Publisher(sampler, lora, config.sampler.max_gap)
    lora.set_version("run@0")
    publisher.publish()
    for version in ("run@1", "run@2", "run@3", "run@4"):
        learn_something(lora, version, by=0.1)
        assert publisher.publish().gap < 1e-4
        for sample in sampler.sample(PROMPTS, **SETTINGS):
            again = lora.logprobs(sample.prompt_ids, sample.token_ids, 1.0)
            np.testing.assert_allclose(sample.logprobs, again, atol=1e-4)
            assert sample.policy_version == version
    assert len(Store(tmp_path).child("adapters").names()) <= 3
    before = sampler.sample(PROMPTS, **SETTINGS)
    server.kill()
    server.start()  # it has no adapters now: the client loads the newest again
    after = sampler.sample(PROMPTS, **SETTINGS)
    assert [s.token_ids.tolist() for s in after] == [s.token_ids.tolist() for s in before]
    assert {s.policy_version for s in after} == {"run@4"}


@pytest.mark.slow
def test_a_server_that_keeps_old_weights_is_found_out(serve, lora, tmp_path):
    server = serve("stale")
    config = config_of("server", lora, endpoint=server.endpoint)
    publisher = Publisher(open_sampler(config, lora, Store(tmp_path)), lora, config.sampler.max_gap)
    publisher.publish()
    learn_something(lora, "v1", by=0.05)
    with pytest.raises(StaleWeights):
        publisher.publish()


def test_a_server_that_is_not_there_is_one_clear_error(lora, tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_core.policy.server_sampler.BACKOFF_S", 0.001)
    config = config_of("server", lora, endpoint="http://127.0.0.1:9")
    with pytest.raises(SourceUnavailable, match="nothing is lost"):
        open_sampler(config, lora, Store(tmp_path)).publish(lora)
