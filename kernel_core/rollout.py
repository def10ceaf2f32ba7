"""Multi-turn conversations: prompt, sample, parse, judge, feed back; all groups of a step together.

Every conversation runs the same number of turns. Stopping early would make the turns that exist depend
on how good they are, and so bias every baseline that compares turns of the same index.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel_core.config import RolloutConfig
from kernel_core.errors import ConfigError
from kernel_core.gym.protocol import Gym, JudgeRequest
from kernel_core.parse import parse_completion
from kernel_core.policy.protocol import Message, Policy, Sample
from kernel_core.progress import Progress, silent
from kernel_core.prompt import build_prompt
from kernel_core.records import (
    Candidate,
    Completion,
    Evaluation,
    Exemplar,
    Group,
    NoCandidate,
    Problem,
    Trajectory,
    Turn,
)
from kernel_core.retrieval.protocol import Retriever

TurnKey = tuple[str, int, int]
"""Problem id, trajectory, turn."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The groups of one step, and what was sampled for each turn (token ids and log-probabilities)."""

    groups: list[Group]
    samples: dict[TurnKey, Sample]


@dataclass(slots=True)
class _Conversation:
    problem: Problem
    trajectory: int
    exemplars: tuple[Exemplar, ...]
    turns: list[Turn] = field(default_factory=list)


def roll_out(
    policy: Policy,
    gym: Gym,
    problems: Sequence[Problem],
    retriever: Retriever | None,
    config: RolloutConfig,
    *,
    group_size: int,
    seed: int,
    judge_seed: int | None = None,
    progress: Progress = silent,
) -> Rollouts:
    """`group_size` conversations of `config.turns` turns for each problem, sampled and judged together.

    What a conversation draws depends on `seed`, its problem, its index in the group and the turn alone.
    All candidates of a problem are judged on the same secret inputs, which `judge_seed` fixes (None:
    `seed`). Raises `GymUnavailable` as the gym does; a bad completion is data.
    """
    _refuse_repeated(problems)
    exemplars = _retrieve(retriever, problems, config.exemplars)
    conversations = [
        _Conversation(problem, trajectory, shown)
        for problem, shown in zip(problems, exemplars, strict=True)
        for trajectory in range(group_size)
    ]
    samples: dict[TurnKey, Sample] = {}
    for turn in range(config.turns):
        prompts = [
            build_prompt(c.problem, c.exemplars, c.turns, config, policy.count_tokens) for c in conversations
        ]
        drawn = _sample(policy, conversations, prompts, config, seed, progress)
        candidates = [parse_completion(sample.text, sample.finish_reason) for sample in drawn]
        evaluations = _judge(
            gym, conversations, candidates, seed if judge_seed is None else judge_seed, config, progress
        )
        for conversation, messages, sample, candidate, evaluation in zip(
            conversations, prompts, drawn, candidates, evaluations, strict=True
        ):
            samples[conversation.problem.id, conversation.trajectory, turn] = sample
            conversation.turns.append(_turn(conversation, messages, sample, candidate, evaluation))
    return Rollouts(groups=_grouped(problems, conversations), samples=samples)


def seed_of(*parts: int | str) -> int:
    """A 63-bit seed from what it belongs to; stable over processes and Python versions."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _sample(
    policy: Policy,
    conversations: Sequence[_Conversation],
    prompts: Sequence[tuple[Message, ...]],
    config: RolloutConfig,
    seed: int,
    progress: Progress,
) -> list[Sample]:
    drawn: list[Sample] = []
    done = len(conversations) * len(conversations[0].turns) if conversations else 0
    total = len(conversations) * config.turns
    for start in range(0, len(conversations), config.sampling.batch_size):
        progress("sample", done + start, total)
        chunk = slice(start, start + config.sampling.batch_size)
        drawn += policy.sample(
            prompts[chunk],
            temperature=config.sampling.temperature,
            max_new_tokens=config.sampling.max_new_tokens,
            seed=[seed_of(seed, c.problem.id, c.trajectory, len(c.turns)) for c in conversations[chunk]],
        )
    progress("sample", done + len(conversations), total)
    return drawn


def _judge(
    gym: Gym,
    conversations: Sequence[_Conversation],
    candidates: Sequence[Candidate | NoCandidate],
    judge_seed: int,
    config: RolloutConfig,
    progress: Progress,
) -> list[Evaluation]:
    requests = [
        JudgeRequest(problem=c.problem, candidate=candidate, seed=seed_of(judge_seed, c.problem.id))
        for c, candidate in zip(conversations, candidates, strict=True)
    ]
    before = len(conversations) * len(conversations[0].turns) if conversations else 0

    def judged(label: str, done: int, total: int) -> None:
        progress("judge", before + done, len(conversations) * config.turns)

    return gym.judge(requests, judged)


def _turn(
    conversation: _Conversation,
    messages: tuple[Message, ...],
    sample: Sample,
    candidate: Candidate | NoCandidate,
    evaluation: Evaluation,
) -> Turn:
    earlier = {turn.candidate.sha256 for turn in conversation.turns if isinstance(turn.candidate, Candidate)}
    return Turn(
        problem_id=conversation.problem.id,
        trajectory=conversation.trajectory,
        index=len(conversation.turns),
        messages=messages,
        exemplar_ids=tuple(exemplar.id for exemplar in conversation.exemplars),
        completion=Completion(
            text=sample.text,
            num_tokens=0 if sample.token_ids is None else len(sample.token_ids),
            finish_reason=sample.finish_reason,
            policy_version=sample.policy_version,
        ),
        candidate=candidate,
        evaluation=evaluation,
        repeats_earlier=isinstance(candidate, Candidate) and candidate.sha256 in earlier,
    )


def _retrieve(
    retriever: Retriever | None, problems: Sequence[Problem], count: int
) -> list[tuple[Exemplar, ...]]:
    if retriever is None or count == 0 or not problems:
        return [() for _ in problems]
    found = retriever.search_many(problems, count)
    return [tuple(neighbour.exemplar for neighbour in neighbours) for neighbours in found]


def _grouped(problems: Sequence[Problem], conversations: Sequence[_Conversation]) -> list[Group]:
    trajectories: dict[str, list[Trajectory]] = {problem.id: [] for problem in problems}
    for c in conversations:
        trajectories[c.problem.id].append(Trajectory(problem_id=c.problem.id, turns=tuple(c.turns)))
    return [Group(problem_id=id_, trajectories=tuple(trajectories[id_])) for id_ in trajectories]


def _refuse_repeated(problems: Sequence[Problem]) -> None:
    repeated = [id_ for id_, count in Counter(problem.id for problem in problems).items() if count > 1]
    if repeated:
        raise ConfigError(f"problem {repeated[0]} was given more than once; a step takes each problem once")
