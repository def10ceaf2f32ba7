"""A vLLM server that training starts: its flags, its death, its sleep and its end, with a stand-in for it.

`test_vllm.py` does the same with a real one.
"""

import contextlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
import torch
from tiny_policy import CONFIG, PROMPTS, SETTINGS, TEXTS
from waiting import LIMIT_S, eventually

from kernel_core.config import TrainConfig
from kernel_core.errors import ConfigError, SourceUnavailable
from kernel_core.policy import vllm_process
from kernel_core.policy.base import Base
from kernel_core.policy.publish import Publisher
from kernel_core.policy.sampler import open_sampler
from kernel_core.policy.tiny_model import new_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.policy.vllm_process import command_for
from kernel_core.runs.placement import placed
from kernel_core.store import Store

REPOSITORY = Path(__file__).parents[2]
STAND_IN = REPOSITORY / "tests" / "fixtures" / "stand_in_vllm"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    policy = new_policy(CONFIG, TEXTS, seed=0)
    folder = tmp_path_factory.mktemp("base")
    policy.save(str(folder))
    return str(folder)


@pytest.fixture
def lora(base):
    policy = TorchPolicy.load(base, CONFIG.model_copy(update={"lora_rank": 4}))
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.1)
    return policy


def opened(lora, folder, **settings):
    """A sampler of kind vllm, for a policy on the CPU; settings may place it on GPUs."""
    config = TrainConfig.model_validate(
        {"policy": lora.config.model_dump(), "sampler": {"kind": "vllm"}} | settings
    )
    return open_sampler(config, lora, Store(folder))


def server_of(sampler):
    """The process of the server itself, below the one that watches."""
    [server] = psutil.Process(sampler._server._place._process.pid).children()
    return server


def seen(sampler):
    """The stand-in's counts; asking does not wake it."""
    return httpx.get(f"{sampler._server._endpoint}/seen").json()


def hold_back(sampler, after):
    """The stand-in gives this many answers more, and then none."""
    httpx.post(f"{sampler._server._endpoint}/answers/{after}").raise_for_status()


def wait_until(sampler, count, least):
    """Wait until one of the stand-in's counts is at least this."""
    counts = eventually(lambda: seen(sampler), lambda counts: counts[count] >= least)
    assert counts[count] >= least, counts


def flags(num_gpus, **settings):
    policy = {"model": "m", "lora_rank": 12, "device": "cuda", "max_context": 4096, "dtype": "bfloat16"}
    config = TrainConfig.model_validate(
        {"policy": policy, "gym": {"device": "cuda", "workers": 2}, "sampler": {"kind": "vllm"}} | settings
    )
    command = command_for(placed(config, num_gpus), Base(name="m", revision="abc"), "127.0.0.1", 1234)
    return " ".join(command)


def test_a_server_on_a_shared_gpu_takes_half_of_it_and_can_sleep():
    shared = flags(1)
    assert "--gpu-memory-utilization 0.5" in shared and shared.endswith("--enable-sleep-mode")
    assert "--model m --host 127.0.0.1 --port 1234" in shared and "--max-lora-rank 16" in shared
    assert "--revision abc" in shared and "--max-model-len 4096" in shared
    alone = flags(3, sample_ahead=True)
    assert "--gpu-memory-utilization 0.9" in alone and "sleep" not in alone and "parallel" not in alone
    assert "--enable-lora" in alone and "worker-extension" not in alone
    whole = flags(1, policy={"model": "m", "device": "cuda"})
    assert "lora" not in whole and "--worker-extension-cls weights_of_training.TakesWeights" in whole
    named = flags(4, sample_ahead=True, placement={"sample": [1, 2]})
    assert "--data-parallel-size 2" in named


def opened_on_one_gpu(lora, folder):
    """A sampler whose server shares a GPU with learner and judge, so that it sleeps."""
    on_one_gpu = {"policy": {"device": "cuda", "lora_rank": 4}, "gym": {"device": "cuda"}}
    place = {"placement": {"learn": [0], "sample": [0], "judge": [0]}}
    return contextlib.closing(opened(lora, folder, **on_one_gpu, **place))


def test_it_publishes_sleeps_and_ends(lora, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{STAND_IN}{os.pathsep}{REPOSITORY}")
    with opened_on_one_gpu(lora, tmp_path) as sampler:
        lora.set_version("run@1")
        assert Publisher(sampler, lora, 0.01).publish().gap < 1e-4
        for times in (1, 2):
            sampler.release()
            sampler.release()
            assert seen(sampler)["sleeps"] == times
            assert len(sampler.sample(PROMPTS, **SETTINGS)) == 3, "it wakes when it is asked"
        check_written(sampler.sample(PROMPTS, **SETTINGS), lora)
        server = server_of(sampler)
    assert not server.is_running()


@pytest.mark.exhaustive
def test_it_takes_many_requests_at_once_dies_in_the_middle_of_them_and_ends(lora, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{STAND_IN}{os.pathsep}{REPOSITORY}")
    with opened_on_one_gpu(lora, tmp_path) as sampler:
        lora.set_version("run@1")
        assert Publisher(sampler, lora, 0.01).publish().gap < 1e-4
        asked, brief = [PROMPTS[i % 3] for i in range(84)], SETTINGS | {"max_new_tokens": 16}
        with ThreadPoolExecutor(1) as pool:
            hold_back(sampler, after=0)
            before = pool.submit(sampler.sample, asked, **brief)
            wait_until(sampler, "now", len(asked))  # every conversation is a request, and all are there
            hold_back(sampler, after=len(asked) + 40)
            before = before.result()
            check_written(before, lora)

            killed = server_of(sampler)
            after = pool.submit(sampler.sample, asked, **brief)
            wait_until(sampler, "answered", len(asked) + 40)
            assert not after.done()
            killed.send_signal(signal.SIGKILL)
            after = after.result()
        assert [s.token_ids.tolist() for s in after] == [s.token_ids.tolist() for s in before]
        assert {s.policy_version for s in after} == {"run@1"}
        started = server_of(sampler)
        assert started.pid != killed.pid
    assert not started.is_running()


def test_an_environment_without_vllm_is_one_clear_error(lora, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setattr(vllm_process, "_NOT_AGAIN_S", LIMIT_S)
    missing = pytest.raises(SourceUnavailable, match=r"No module named 'vllm'.*sampler\.python")
    with contextlib.closing(opened(lora, tmp_path)) as sampler:
        with missing:
            sampler.publish(lora)
        failed = sampler._server._place._process
        with missing:
            sampler.sample(PROMPTS * 20, **SETTINGS)
        assert sampler._server._place._process is failed, "one start is enough for all requests that wait"


def test_a_server_of_others_takes_no_full_weights(base, tmp_path):
    policy = TorchPolicy.load(base, CONFIG)
    config = TrainConfig(policy=CONFIG, sampler={"kind": "server", "endpoint": "http://127.0.0.1:1"})
    with pytest.raises(ConfigError, match=r"set policy\.lora_rank, or sampler\.kind=vllm"):
        open_sampler(config, policy, Store(tmp_path))


def changed(policy, version):
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    policy.set_version(version)


@pytest.mark.exhaustive
def test_full_weights_reach_a_server_that_dies_while_it_writes_and_takes_and_none_starts_after_the_end(
    base, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", f"{STAND_IN}{os.pathsep}{REPOSITORY}")
    policy = TorchPolicy.load(base, CONFIG)
    slowly = tmp_path / "served" / "slowly"
    with contextlib.closing(opened(policy, tmp_path)) as sampler, ThreadPoolExecutor(1) as pool:
        publisher = Publisher(sampler, policy, 0.01)
        publisher.publish()
        first = server_of(sampler)
        changed(policy, "run@1")
        assert publisher.publish().gap < 1e-4
        assert server_of(sampler) == first, "a running server takes them"
        writing = half_written(sampler, pool)
        first.kill()
        check_written(writing.result(), policy)

        second = server_of(sampler)
        changed(policy, "run@2")
        slowly.touch()
        publishing = pool.submit(publisher.publish)
        wait_until(sampler, "calls", 1)
        assert second != first and not publishing.done()
        second.kill()
        slowly.unlink()
        publication = publishing.result()
        assert publication.gap < 1e-4 < publication.moved
        assert server_of(sampler) != second
        check_written(sampler.sample(PROMPTS, **SETTINGS), policy)

        third = server_of(sampler)
        writing = half_written(sampler, pool)
        sampler.close()
        with pytest.raises(SourceUnavailable, match="closed"):
            writing.result()
        assert not third.is_running() and sampler._server._place.has_ended()
        assert not slowly.parent.exists(), "checkpoints have the weights"


def half_written(sampler, pool):
    """Sixty answers that are asked for, while the server gives half of them and holds back the others."""
    answered = seen(sampler)["answered"]
    hold_back(sampler, after=30)
    writing = pool.submit(sampler.sample, [PROMPTS[i % 3] for i in range(60)], **SETTINGS)
    wait_until(sampler, "answered", answered + 30)
    assert not writing.done()
    return writing


def check_written(samples, policy):
    """They come from the weights that the policy has now, and say so."""
    assert {sample.policy_version for sample in samples} == {policy.version}
    for sample in samples[:3]:
        again = policy.logprobs(sample.prompt_ids, sample.token_ids, 1.0)
        np.testing.assert_allclose(sample.logprobs, again, atol=1e-4)


@pytest.mark.parametrize("ends", ["input", "command"])
def test_a_watched_command_and_all_that_it_started_end_together(ends):
    command = [sys.executable, "-m", "kernel_core.places.while_open", "sh", "-c", "sleep 100 & sleep 100"]
    watching = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, cwd=REPOSITORY)
    process = psutil.Process(watching.pid)
    started = eventually(lambda: process.children(recursive=True), lambda started: len(started) == 3)
    if ends == "input":
        watching.stdin.close()
    else:
        started[0].kill()
    watching.wait(timeout=LIMIT_S)
    gone, alive = psutil.wait_procs(started, timeout=LIMIT_S)
    assert len(gone) == 3 and not alive
