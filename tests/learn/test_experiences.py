"""Answers that are written ahead are one update old, are weighed for it, and survive faults and kills."""

import pytest
from pydantic import ValidationError

from kernel_core.config import MismatchConfig, SamplerConfig, TrainConfig
from kernel_core.errors import ConfigError, GymUnavailable
from kernel_core.learn.loop import Trainer
from kernel_core.policy.sampler import CopySampler
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.progress import silent
from kernel_core.store import Store


class Watching(CopySampler):
    """A real sampler that notes which weights wrote how many answers at once."""

    def __init__(self, policy):
        super().__init__(policy)
        self.written = []

    def sample(self, prompts, **settings):
        self.written.append((len(prompts), self.version))
        return super().sample(prompts, **settings)


@pytest.fixture
def config(train_config):
    return train_config.model_copy(
        update={
            "sample_ahead": True,
            "sampler": SamplerConfig(kind="copy"),
            "mismatch": MismatchConfig(importance_cap=2.0),
            "rollout": train_config.rollout.model_copy(update={"turns": 1}),
            "lr": 3e-3,
        }
    )


def trainer_on(config, folder, taught, gym):
    policy = TorchPolicy.load(str(taught), config.policy)
    sampler = Watching(policy)
    return Trainer(config, Store(folder), policy, gym, sampler=sampler), sampler


def age_of_steps(trainer, sampler, config):
    """Updates that the weights of each step's answers had seen, step by step; a probe may be beside them."""
    size = config.problems_per_step * config.group_size
    sizes = (size, size + config.curriculum.probe_problems)
    return [
        int(version.rpartition("@")[2]) if "@" in version else 0
        for count, version in sampler.written
        if count in sizes
    ]


@pytest.mark.exhaustive
def test_answers_are_one_update_old_and_weighed_by_the_ratio(config, taught, gym, tmp_path):
    trainer, sampler = trainer_on(config, tmp_path / "ahead", taught, gym)
    while not trainer.done:
        trainer.step()
    trainer.close()
    assert age_of_steps(trainer, sampler, config) == [0, 0, 1]
    # The probes are written by the newest weights: at the start and after the second step.
    probes = [version for count, version in sampler.written if count == config.curriculum.probe_problems]
    assert [version.rpartition("@")[2] for version in probes][1:] == ["2"]
    ahead = list(Store(tmp_path / "ahead").lines("metrics.jsonl"))[1:]
    assert ahead[0]["update/sampler_kl"] < 1e-8 < 1e-6 < ahead[1]["update/sampler_kl"]
    assert ahead[1]["update/importance_mean"] != pytest.approx(1.0, abs=1e-6)

    in_order = config.model_copy(update={"sample_ahead": False})
    trainer, sampler = trainer_on(in_order, tmp_path / "in order", taught, gym)
    trainer.step()
    trainer.step()
    rows = list(Store(tmp_path / "in order").lines("metrics.jsonl"))[1:]
    # A step of equal rewards has no update, and then the answers of the next have the same weights.
    updated = [0, *(row["step"] for row in rows if row["update/num_optimiser_steps"])]
    newest = [max(step for step in updated if step < row["step"]) for row in rows]
    *ages, third = age_of_steps(trainer, sampler, config)
    assert ages == newest and newest[1] == 1
    assert third == max(updated)  # the third step's answers are written with the probe after the second
    assert rows[0]["reward/mean"] == ahead[0]["reward/mean"]


@pytest.mark.exhaustive
def test_a_run_that_goes_on_writes_its_first_step_with_the_newest_weights(config, taught, gym, tmp_path):
    trainer, _ = trainer_on(config, tmp_path, taught, gym)
    trainer.step()
    trainer.close()
    on, sampler = trainer_on(config, tmp_path, taught, gym)
    while not on.done:
        on.step()
    assert on.step_number == 3
    assert age_of_steps(on, sampler, config) == [1, 1]
    steps = [row["step"] for row in Store(tmp_path).lines("metrics.jsonl")]
    assert steps == [0, 1, 2, 3]


def test_a_gym_that_fails_ahead_ends_the_step_that_needed_it_and_no_other(
    config, brief_config, taught, gym, tmp_path
):
    config = config.model_copy(update={"rollout": brief_config.rollout})

    class Failing:
        version, steps_judged, is_back = gym.version, 0, False

        def judge(self, requests, progress=silent):
            if self.steps_judged and not self.is_back:
                raise GymUnavailable("the judges are away")
            self.steps_judged += len(requests) > config.curriculum.probe_problems
            return gym.judge(requests, progress)

    failing = Failing()
    trainer, _ = trainer_on(config, tmp_path, taught, failing)
    assert trainer.step().step == 1
    with pytest.raises(GymUnavailable):
        trainer.step()
    failing.is_back = True
    while not trainer.done:
        trainer.step()
    assert [row["step"] for row in Store(tmp_path).lines("metrics.jsonl")] == [0, 1, 2, 3]


def test_settings_under_which_nothing_can_be_written_ahead_are_refused(config, policy, gym, tmp_path):
    with pytest.raises(ValidationError, match=r"sampler\.kind=copy"):
        TrainConfig.model_validate({"sample_ahead": True})
    ahead = TrainConfig.model_validate({"sample_ahead": True, "sampler": {"kind": "copy"}})
    assert ahead.mismatch.importance_cap == 2.0
    in_turns = config.model_copy(update={"rollout": config.rollout.model_copy(update={"overlap": False})})
    with pytest.raises(ConfigError, match=r"rollout\.overlap"):
        Trainer(in_turns, Store(tmp_path), policy, gym)
