"""Judges get GPUs of their own where there are enough, and those that are named otherwise."""

import pytest
from pydantic import ValidationError

from kernel_core.config import EvaluateConfig, GymConfig, TrainConfig
from kernel_core.errors import GymUnavailable
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.runs.placement import placed

ON_GPU = {"policy": {"device": "cuda"}, "gym": {"device": "cuda", "workers": 2}}


@pytest.mark.parametrize(
    ("num_gpus", "learners", "gpus", "overlap"),
    [
        (1, 1, (0,), False),  # in turns
        (2, 1, (1,), True),
        (2, 2, (0, 1), False),
        (4, 1, (1, 2), True),  # no more judges than workers
        (4, 3, (3,), True),
        (8, 4, (4, 5), True),
    ],
)
def test_judges_sit_beside_the_learners_where_there_is_room(num_gpus, learners, gpus, overlap):
    settled = placed(TrainConfig.model_validate(ON_GPU | {"learners": learners}), num_gpus)
    assert (settled.gym.gpus, settled.gym.workers) == (gpus, len(gpus))
    assert settled.rollout.overlap is overlap


def test_named_gpus_and_a_chosen_overlap_stay():
    named = TrainConfig.model_validate(ON_GPU | {"gym": {"device": "cuda", "gpus": [0]}})
    assert placed(named, 2).gym.gpus == (0,)
    assert placed(named, 2).rollout.overlap is False
    chosen = TrainConfig.model_validate(ON_GPU | {"rollout": {"overlap": False}})
    assert placed(chosen, 2).rollout.overlap is False


def test_a_policy_elsewhere_leaves_all_gpus_to_the_judges():
    asked = {"kind": "openai", "model": "m", "endpoint": "http://localhost:1/v1"}
    config = EvaluateConfig.model_validate({"policy": asked, "gym": {"device": "cuda", "workers": 4}})
    assert placed(config, 2).gym.gpus == (0, 1)


def test_judges_on_a_cpu_and_on_a_cluster_are_left_alone():
    for gym in ({"device": "cpu"}, {"device": "cuda", "cluster": "ray"}):
        config = TrainConfig.model_validate({"gym": gym})
        assert placed(config, 2) is config


@pytest.mark.parametrize(
    "gym",
    [
        {"device": "cpu", "gpus": [0]},
        {"device": "cuda", "cluster": "ray", "gpus": [0]},
        {"device": "cuda", "gpus": [1, 1]},
        {"device": "cuda", "gpus": [-1]},
    ],
)
def test_gpus_that_no_judge_can_have_are_refused_when_settings_are_read(gym):
    with pytest.raises(ValidationError, match=r"gym\.gpus"):
        GymConfig.model_validate(gym)


def test_a_gpu_that_is_not_there_is_named_before_a_judge_starts():
    with pytest.raises(GymUnavailable, match=r"\[97\] are not among them"):
        open_gym(GymConfig(device="cuda", gpus=(97,)))
