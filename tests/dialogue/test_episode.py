"""A conversation with a policy that is sampled elsewhere: prompts, rewards, its end."""

from __future__ import annotations

import pytest
from exploit_files import SMALL_SOFTMAX as SOFTMAX
from exploit_files import text_of

from kernel_core.config import EnvironmentConfig, RewardWeights, RolloutConfig
from kernel_core.dialogue.environment import open_source
from kernel_core.dialogue.episode import Episode
from kernel_core.errors import NotFound
from kernel_core.gym.contract.requests import Gym
from kernel_core.records import NoCandidate

KERNEL = text_of("honest_softmax")
WEIGHTS = RewardWeights(format=0.1, correct=1.0)


def _answer(source: str) -> str:
    return f"<think>\nOne program a row.\n</think>\n<KERNEL>\n{source}\n</KERNEL>"


def _play(gym: Gym, answers: list[str], **rollout: object) -> Episode:
    episode = Episode(SOFTMAX, RolloutConfig(turns=len(answers), **rollout), WEIGHTS, judge_seed=1)
    for answer in answers:
        request = episode.request(answer)
        [evaluation] = gym.judge([request])
        episode.take(answer, request, evaluation)
    return episode


def test_rewards_add_up_to_the_worth_of_the_last_kernel(quick_gym: Gym) -> None:
    wrong = KERNEL.replace("numerator / tl.sum", "numerator * tl.sum")
    episode = _play(quick_gym, ["nothing", _answer(wrong), _answer(KERNEL)])
    assert episode.rewards() == pytest.approx([0.0, 0.1, 1.0])
    assert episode.total == pytest.approx(1.1)
    assert episode.done


def test_the_same_kernel_again_earns_nothing_and_a_broken_one_costs(quick_gym: Gym) -> None:
    episode = _play(quick_gym, [_answer(KERNEL), _answer(f"{KERNEL}\n# again"), "nothing"])
    assert episode.rewards() == pytest.approx([1.1, 0.0, -1.1])
    assert episode.turns[1].repeats_earlier


def test_a_prompt_holds_the_earlier_kernel_and_its_feedback(quick_gym: Gym) -> None:
    episode = Episode(SOFTMAX, RolloutConfig(turns=2), WEIGHTS)
    assert [message["role"] for message in episode.messages] == ["user"]
    request = episode.request("no kernel at all")
    assert isinstance(request.candidate, NoCandidate)
    [evaluation] = quick_gym.judge([request])
    episode.take("no kernel at all", request, evaluation)
    assert [message["role"] for message in episode.messages] == ["user", "assistant", "user"]
    assert evaluation.feedback in episode.messages[-1]["content"]
    assert not episode.done


def test_a_kernel_that_is_fast_enough_ends_the_episode(quick_gym: Gym) -> None:
    episode = Episode(SOFTMAX, RolloutConfig(turns=5, stop_at_speedup=0.01), WEIGHTS)
    request = episode.request(_answer(KERNEL))
    [evaluation] = quick_gym.judge([request])
    episode.take(_answer(KERNEL), request, evaluation)
    assert evaluation.best_known_speedup is not None
    assert episode.done


def test_an_outside_policy_gets_the_full_prompt_unless_another_is_set() -> None:
    assert EnvironmentConfig().rollout.template == "full"
    assert (
        EnvironmentConfig.model_validate({"rollout": {"template": "compact"}}).rollout.template == "compact"
    )


def test_a_source_draws_by_seed_and_names_an_unknown_problem() -> None:
    source = open_source(EnvironmentConfig(), [SOFTMAX])
    assert source.draw(3) == SOFTMAX.id
    with pytest.raises(NotFound, match="none of them"):
        source.begin("none of them")
