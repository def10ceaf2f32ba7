"""The reward function and the rollout for TRL, with stand-ins for the parts that TRL owns."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from exploit_files import PROBLEMS, text_of
from transformers import AutoTokenizer

from kernel_core.config import EnvironmentConfig
from kernel_core.dialogue.environment import EpisodeSource, open_source
from kernel_core.errors import ConfigError, GymUnavailable
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.interop.trl_grpo import KernelReward, KernelRollout, rollout_reward, training_rows
from kernel_core.progress import Progress, silent
from kernel_core.records import Evaluation, NotJudged

SOFTMAX = PROBLEMS["softmax_rows"]
HONEST = text_of("honest_softmax")
ANSWERS = [f"<KERNEL>\n{HONEST}\n</KERNEL>", "no kernel"]


def _source(turns: int) -> EpisodeSource:
    settings = {"rollout": {"turns": turns, "template": "compact"}, "rewards": "dojo/correct"}
    return open_source(EnvironmentConfig.model_validate(settings), [SOFTMAX])


class _FailsOn:
    """A gym that cannot judge one kind of candidate."""

    def __init__(self, gym: Gym, kind: str) -> None:
        self._gym, self._kind = gym, kind

    def judge(
        self, requests: Sequence[JudgeRequest], progress: Progress = silent
    ) -> list[Evaluation | NotJudged]:
        if any(request.candidate.kind == self._kind for request in requests):
            raise GymUnavailable("no judge for it")
        return self._gym.judge(requests, progress)


def test_a_completion_earns_what_its_kernel_is_worth(quick_gym: Gym) -> None:
    source = _source(turns=1)
    [row] = training_rows(source)
    logged: dict[str, float] = {}
    rewards = KernelReward(source, quick_gym)(
        prompts=[row["prompt"]] * 3,
        completions=[ANSWERS[0], ANSWERS[1], [{"role": "assistant", "content": ANSWERS[0]}]],
        completion_ids=[[1], [2], [3]],
        problem_id=[row["problem_id"]] * 3,
        log_metric=logged.__setitem__,
    )
    assert rewards[0] == rewards[2] > 1.0
    assert rewards[1] == 0.0
    assert logged == {"kernel/correct": pytest.approx(2 / 3)}


def test_a_fault_of_the_judge_is_no_reward(quick_gym: Gym) -> None:
    source = _source(turns=1)
    rows = training_rows(source) * 2
    arguments: dict[str, Any] = {
        "prompts": [row["prompt"] for row in rows],
        "problem_id": [row["problem_id"] for row in rows],
    }
    reward = KernelReward(source, _FailsOn(quick_gym, "no_candidate"))  # type: ignore[arg-type]
    assert reward(completions=ANSWERS, **arguments)[1] is None
    with pytest.raises(GymUnavailable, match="all of 2"):
        reward(completions=["no", "none"], **arguments)


def test_a_conversation_is_one_row_whose_feedback_is_masked(quick_gym: Gym) -> None:
    source = _source(turns=2)
    [row] = training_rows(source)
    tokenizer = AutoTokenizer.from_pretrained("data/policy")
    end = tokenizer.eos_token_id
    answers = [[*tokenizer(text)["input_ids"], end] for text in reversed(ANSWERS)]
    asked: list[list[list[int]]] = []

    def generate(prompt_ids: list[list[int]], *_: Any) -> tuple[list[list[int]], None]:
        asked.append(prompt_ids)
        return [answers[len(asked) - 1]] * len(prompt_ids), None

    trainer = SimpleNamespace(processing_class=tokenizer, _generate_single_turn=generate)
    made = KernelRollout(source, quick_gym)([row["prompt"]] * 2, trainer)
    assert made["logprobs"] is None
    [ids, _], [own, _] = made["completion_ids"], made["env_mask"]
    sampled = [token for token, is_own in zip(ids, own, strict=True) if is_own]
    feedback = [token for token, is_own in zip(ids, own, strict=True) if not is_own]
    assert sampled == answers[0] + answers[1]
    text = tokenizer.decode(feedback)
    assert text.startswith("<|user|># result")
    assert text.endswith("<|assistant|>")
    assert asked[1][0] == made["prompt_ids"][0] + answers[0] + feedback
    rewards = rollout_reward([], [], made["episode_reward"])
    assert rewards[0] == rewards[1]
    assert rewards[0] is not None
    assert rewards[0] > 1.0


def test_a_truncated_answer_is_ended_before_the_feedback(quick_gym: Gym) -> None:
    tokenizer = AutoTokenizer.from_pretrained("data/policy")
    source = _source(turns=2)
    answer = tokenizer("cut")["input_ids"]
    trainer = SimpleNamespace(
        processing_class=tokenizer,
        _generate_single_turn=lambda ids, *_: ([answer] * len(ids), [[-0.5] * len(answer)] * len(ids)),
    )
    made = KernelRollout(source, quick_gym)([training_rows(source)[0]["prompt"]], trainer)
    assert made["completion_ids"][0][len(answer)] == tokenizer.eos_token_id
    assert len(made["logprobs"][0]) == len(made["completion_ids"][0]) == len(made["env_mask"][0])


def test_rewards_are_named_by_preset_and_stage() -> None:
    with pytest.raises(ConfigError, match="dojo/correct"):
        open_source(EnvironmentConfig(rewards="best"), [SOFTMAX])
