"""Every role gets GPUs by their number and the settings, and those that are named otherwise."""

import pytest
import torch
from pydantic import ValidationError

from kernel_core.config import EvaluateConfig, GymConfig, PlacementConfig, TrainConfig
from kernel_core.errors import ConfigError, GymUnavailable
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.runs.placement import environment_with, placed

COPY, AHEAD = {"sampler": {"kind": "copy"}}, {"sampler": {"kind": "copy"}, "sample_ahead": True}
EIGHT = {"gym": {"device": "cuda", "workers": 8}}
ON_CPU = {"gym": {"device": "cpu"}}


def on_gpu(kind, settings):
    both = {"policy": {"device": "cuda"}, "gym": {"device": "cuda", "workers": 2}}
    return kind.model_validate(both | settings)


@pytest.mark.parametrize(
    ("num_gpus", "settings", "learn", "sample", "judge"),
    [
        (1, {}, [0], [0], [0]),  # in turns
        (2, {}, [0], [0], [1]),
        (3, {}, [0], [0], [1, 2]),
        (4, {}, [0, 1], [0], [2, 3]),
        (8, {}, [0, 1, 2, 3, 4, 5], [0], [6, 7]),  # no more judges than workers
        (8, EIGHT, [0, 1, 2, 3], [0], [4, 5, 6, 7]),
        (2, COPY, [0], [0], [1]),
        # With sample_ahead the sampler works during the update: a GPU of its own from three on.
        (1, AHEAD, [0], [0], [0]),
        (2, AHEAD, [0], [0], [1]),
        (3, AHEAD, [0], [1], [2]),
        (4, AHEAD, [0], [1], [2, 3]),
        (8, AHEAD | EIGHT, [0], [1], [2, 3, 4, 5, 6, 7]),
        # A number of learners that is set is kept.
        (2, {"learners": 2}, [0, 1], [0], [0, 1]),
        (4, {"learners": 1}, [0], [0], [1, 2]),
        (4, {"learners": 3}, [0, 1, 2], [0], [3]),
        (4, {"learners": 4}, [0, 1, 2, 3], [0], [0, 1]),
        (4, AHEAD | {"learners": 2}, [0, 1], [2], [3]),
        (3, AHEAD | {"learners": 2}, [0, 1], [0], [2]),
        # Roles that are not on GPUs of this host.
        (2, ON_CPU, [0, 1], [0], []),
        (2, AHEAD | ON_CPU, [0], [1], []),
        (2, {"gym": {"device": "cuda", "cluster": "ray"}}, [0, 1], [0], []),
        (2, {"policy": {"device": "cpu"}}, [], [], [0, 1]),
        (2, {"policy": {"device": "cuda", "lora_rank": 4}, "sampler": {"kind": "server"}}, [0], [], [1]),
        # Roles that are named.
        (2, {"placement": {"judge": [0]}}, [1], [1], [0]),
        (2, {"placement": {"judge": [0, 1]}, "learners": 1}, [0], [0], [0, 1]),
        (2, {"placement": {"judge": [1]}, "learners": 2}, [0, 1], [0], [1]),
        (4, {"placement": {"learn": [3, 1]}}, [3, 1], [3], [0, 2]),
        (4, COPY | {"placement": {"sample": [3]}}, [0], [3], [1, 2]),
        (4, COPY | {"placement": {"learn": [1, 2], "sample": [0], "judge": [3]}}, [1, 2], [0], [3]),
    ],
)
def test_training_is_placed(num_gpus, settings, learn, sample, judge):
    settled = placed(on_gpu(TrainConfig, settings), num_gpus)
    assert {role: list(gpus) for role, gpus in settled.placement.gpus.items()} == {
        "learn": learn,
        "sample": sample,
        "judge": judge,
    }
    assert settled.num_learners == max(1, len(learn))
    if judge:
        assert settled.rollout.overlap is not bool({*learn, *sample} & {*judge})
    assert placed(settled, num_gpus) == settled


@pytest.mark.parametrize(
    ("num_gpus", "settings", "sample", "judge"),
    [
        (1, {}, (0,), (0,)),
        (2, {}, (0,), (1,)),
        (8, EIGHT, (0,), (1, 2, 3, 4, 5, 6, 7)),
        (8, {"placement": {"sample": [7]}}, (7,), (0, 1)),
        (2, {"policy": {"kind": "openai", "model": "m", "endpoint": "http://h/v1"}}, (), (0, 1)),
    ],
)
def test_an_evaluation_is_placed(num_gpus, settings, sample, judge):
    place = placed(on_gpu(EvaluateConfig, settings), num_gpus).placement
    assert (place.learn, place.sample, place.judge) == ((), sample, judge)


def test_a_chosen_overlap_stays_and_a_host_without_gpus_changes_nothing():
    chosen = on_gpu(TrainConfig, {"rollout": {"overlap": False}})
    assert placed(chosen, 2).rollout.overlap is False
    assert placed(chosen, 0) is chosen
    assert placed(TrainConfig(), 2) == TrainConfig()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"placement": {"judge": [2]}}, r"placement\.judge=\[2\], but 2 GPUs are visible"),
        ({"placement": {"learn": [0, 5]}}, r"placement\.learn=\[0, 5\], but 2 GPUs"),
        ({"learners": 3}, "learners=3, but 2 GPUs"),
    ],
)
def test_gpus_that_are_missing_are_named(settings, words):
    with pytest.raises(ConfigError, match=words):
        placed(on_gpu(TrainConfig, settings), 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"placement": {"judge": [1, 1]}}, "placement.judge names each GPU once"),
        ({"placement": {"learn": [-1]}}, "from 0 on"),
        ({"placement": {"judge": [0]}} | ON_CPU, "gym.device=cuda"),
        ({"placement": {"judge": [0]}, "gym": {"device": "cuda", "cluster": "ray"}}, "gym.cluster=local"),
        ({"placement": {"learn": [0]}, "policy": {"device": "cpu"}}, "policy.device=cuda"),
        ({"placement": {"learn": [0, 1]}, "learners": 1}, "learners=1, but placement.learn names 2"),
        ({"placement": {"sample": [1]}}, "set sampler.kind=copy"),
        ({"placement": {"sample": [0, 1]}} | COPY, "uses one GPU"),
        ({"placement": {"sample": [1]}, "sampler": {"kind": "server"}}, "samples elsewhere"),
        ({"placement": {"cluster": "ray"}}, "set policy.kind=torch sampler.kind=vllm"),
        ({"placement": {"cluster": "ray", "learn": [0]}} | COPY, "leave placement.learn out"),
    ],
)
def test_places_that_cannot_be_are_refused_when_settings_are_read(settings, words):
    with pytest.raises(ValidationError, match=words):
        on_gpu(TrainConfig, settings)


def test_an_evaluation_has_no_learners():
    with pytest.raises(ValidationError, match="learns nothing"):
        on_gpu(EvaluateConfig, {"placement": {"learn": [0]}})
    with pytest.raises(ValidationError, match=r"needs gym\.cluster=ray alone"):
        on_gpu(EvaluateConfig, {"placement": {"cluster": "ray"}})


def test_a_cluster_takes_all_roles_from_this_host():
    config = on_gpu(TrainConfig, {"placement": {"cluster": "ray"}, "learners": 2} | COPY)
    assert placed(config, 4) is config and config.num_learners == 2
    assert config.gym.cluster == "ray" and config.policy_here.device == "cpu"
    assert config.policy_on_gpu and not config.samples_on_gpu and not config.judges_on_gpu
    judged_here = {"placement": {"cluster": "ray"}, "gym": {"device": "cuda", "cluster": "local"}} | COPY
    settled = placed(on_gpu(TrainConfig, judged_here), 2).placement
    assert settled == PlacementConfig(cluster="ray", judge=(0, 1))


@pytest.mark.parametrize(
    ("shown", "seen"),
    [(None, "3,1"), ("", "3,1"), ("4,5,6,7", "7,5"), ("GPU-a,GPU-b,GPU-c,GPU-d", "GPU-d,GPU-b")],
)
def test_a_process_of_its_own_sees_its_gpus_alone(monkeypatch, shown, seen):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert environment_with((3, 1))["CUDA_VISIBLE_DEVICES"] == seen


def test_a_gpu_that_is_not_there_is_named_before_a_judge_starts():
    with pytest.raises(GymUnavailable, match=r"\[97\] are not among them"):
        open_gym(GymConfig(device="cuda"), gpus=(97,))


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_copy_samples_on_its_own_gpu():
    from kernel_core.policy.sampler import CopySampler
    from kernel_core.policy.tiny_model import new_policy

    config = TrainConfig(policy={"device": "cuda", "model": "new"}, placement=PlacementConfig()).policy
    policy = new_policy(config, ["import triton\n"] * 3, seed=0)
    sampler = CopySampler(policy, torch.device("cuda", 1))
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.5)
    sampler.publish(policy)
    asked = [[{"role": "user", "content": "add"}]]
    for sample in sampler.sample(asked, temperature=1.0, max_new_tokens=16, seed=0):
        again = policy.logprobs(sample.prompt_ids, sample.token_ids, 1.0)
        assert abs(sample.logprobs - again).max() < 1e-3
    assert sampler._policy.device.index == 1
