"""One conversation about one problem: prompt, completion, judgement, reward, feedback.

The functions here define a turn and the end of a conversation for our own rollouts. `Episode` adds the loop
for policies that are sampled elsewhere, by another trainer or over a network. It does no I/O: its owner
judges the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernel_core.config import RewardWeights, RolloutConfig
from kernel_core.corpus.normalise import kernel_hash
from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.prompt import build_prompt
from kernel_core.dialogue.turns import Completion, Turn
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.policy.protocol import Message, estimated_tokens
from kernel_core.records import Candidate, Evaluation, NoCandidate, Problem, RewardTerms
from kernel_core.reward.returns import progress
from kernel_core.reward.terms import worth


def next_turn(
    problem: Problem,
    earlier: Sequence[Turn],
    messages: tuple[Message, ...],
    completion: Completion,
    candidate: Candidate | NoCandidate,
    evaluation: Evaluation,
    *,
    trajectory: int = 0,
    exemplar_ids: tuple[str, ...] = (),
) -> Turn:
    """Build the turn that follows `earlier`."""
    earlier_answers = {_comparable(turn.candidate) for turn in earlier} - {None}
    return Turn(
        problem_id=problem.id,
        trajectory=trajectory,
        index=len(earlier),
        messages=messages,
        exemplar_ids=exemplar_ids,
        completion=completion,
        candidate=candidate,
        evaluation=evaluation,
        repeats_earlier=_comparable(candidate) in earlier_answers,
    )


def is_over(turns: Sequence[Turn], config: RolloutConfig) -> bool:
    """Return True if all turns have run, or the last kernel is as fast as was asked for."""
    if len(turns) >= config.turns:
        return True
    if config.stop_at_speedup is None or not turns:
        return False
    evaluation = turns[-1].evaluation
    return evaluation.correct and (evaluation.best_known_speedup or 0.0) >= config.stop_at_speedup


def _comparable(candidate: Candidate | NoCandidate) -> str | None:
    """Return the hash of a kernel without comments and spacing, so that a new comment earns no second reward.

    Names and annotations count, since `tl.constexpr` makes another kernel.
    """
    return kernel_hash(candidate.source, "triton") if isinstance(candidate, Candidate) else None


@dataclass(slots=True)
class Episode:
    """Conversation with a policy sampled elsewhere.

    `messages` is the next prompt; `request` makes a completion into a request for a judge; `take` adds the
    evaluation and gives the reward. Rewards are progress, as in our own training: with γ = 1 they sum to the
    worth of the last kernel, so a trainer with one reward for a conversation may add them up.
    """

    problem: Problem
    config: RolloutConfig
    weights: RewardWeights
    count_tokens: Callable[[str], int] = estimated_tokens
    judge_seed: int | None = None
    """Seed of the secret inputs; None draws fresh ones for each judgement."""
    turns: list[Turn] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Return True if the conversation is over."""
        return is_over(self.turns, self.config)

    @property
    def messages(self) -> tuple[Message, ...]:
        """Return the prompt of the next turn."""
        return build_prompt(self.problem, (), self.turns, self.config, self.count_tokens)

    @property
    def total(self) -> float:
        """Return the sum of all rewards so far."""
        return sum(self.rewards())

    def request(self, completion: str, finish_reason: str = "stop") -> JudgeRequest:
        """Build the judge's request for a completion."""
        candidate = parse_completion(completion, finish_reason)
        return JudgeRequest(problem=self.problem, candidate=candidate, seed=self.judge_seed)

    def take(self, completion: str, request: JudgeRequest, evaluation: Evaluation) -> float:
        """Add a judged turn; gives its reward."""
        written = Completion(text=completion, finish_reason="stop", policy_version="outside")
        self.turns.append(
            next_turn(self.problem, self.turns, self.messages, written, request.candidate, evaluation)
        )
        return self.rewards()[-1]

    def rewards(self) -> list[float]:
        """Return the reward of each turn: progress, and its own penalty."""
        terms = self.terms()
        return progress([term.total - term.penalty for term in terms], [term.penalty for term in terms])

    def terms(self) -> list[RewardTerms]:
        """Return the reward terms of each turn."""
        return [worth(turn, self.weights) for turn in self.turns]
