"""From judged conversations to what is learned from them: rewards, returns, advantages and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernel_core.advantages import ESTIMATORS
from kernel_core.config import RewardWeights, TrainConfig
from kernel_core.learn.batch import Row
from kernel_core.records import Group, RewardTerms, Trajectory, Turn
from kernel_core.rejection import ProfileRejection, keep_probability
from kernel_core.returns import given, progress, returns_of
from kernel_core.rewards import known_own_share, reward, worth
from kernel_core.rollout import Rollouts, seed_of


@dataclass(frozen=True, slots=True)
class GradedTurn:
    """A turn with what it earned, what it led to, and how that compares with its group."""

    turn: Turn
    terms: RewardTerms
    """What its kernel is worth by itself."""
    paid: float
    """Its reward in the course of the conversation."""
    following: float
    """Its return: discounted rewards from this turn on."""
    advantage: float


def grade(groups: Sequence[Group], weights: RewardWeights, config: TrainConfig) -> list[list[GradedTurn]]:
    """Every turn of every group, in order, graded under a stage's weights; one list a group."""
    return [_grade_group(group, weights, config) for group in groups]


def varies(group: Sequence[GradedTurn]) -> bool:
    """Whether anything can be learned from a group: some turn did better than another."""
    return any(graded.advantage != 0.0 for graded in group)


def rows_of(
    graded: Sequence[Sequence[GradedTurn]],
    rollouts: Rollouts,
    profile_rejection: ProfileRejection = "none",
    seed: int = 0,
) -> list[Row]:
    """A training row for each turn that the policy really wrote; `seed` is of the draws of rejection."""
    rows = []
    conversations: dict[tuple[str, int], int] = {}
    for turn, advantage in ((one.turn, one.advantage) for group in graded for one in group):
        key = turn.problem_id, turn.trajectory
        sample = rollouts.samples[*key, turn.index]
        if sample.prompt_ids is None or sample.token_ids is None:
            raise ValueError(f"policy {sample.policy_version} gives no token ids; training needs them")
        if not len(sample.token_ids):
            continue
        chance = keep_probability(
            turn.evaluation.correct, known_own_share(turn.evaluation), profile_rejection
        )
        drawn = np.random.default_rng(seed_of(seed, *key, turn.index)).random()
        rows.append(
            Row(
                sample.prompt_ids,
                sample.token_ids,
                advantage,
                sample.logprobs,
                conversation=conversations.setdefault(key, len(conversations)),
                kept=bool(drawn < chance),
            )
        )
    return rows


def paid_rewards(trajectory: Trajectory, weights: RewardWeights, config: TrainConfig) -> list[float]:
    """The reward of each turn of a conversation, by the configured rule of credit."""
    if config.credit == "absolute":
        return [reward(turn, weights).total for turn in trajectory.turns]
    worth_T, penalty_T = _worths(trajectory, weights)
    return progress(worth_T, penalty_T)


def _worths(trajectory: Trajectory, weights: RewardWeights) -> tuple[list[float], list[float]]:
    """What each turn's kernel is worth without its penalty, and the penalty."""
    terms = [worth(turn, weights) for turn in trajectory.turns]
    return [one.total - one.penalty for one in terms], [one.penalty for one in terms]


def _grade_group(group: Group, weights: RewardWeights, config: TrainConfig) -> list[GradedTurn]:
    if not group.trajectories:
        return []
    paid = [paid_rewards(one, weights, config) for one in group.trajectories]
    following = [returns_of(rewards, config.gamma, config.returns) for rewards in paid]
    stands_G_T = np.zeros((len(paid), max(map(len, paid))))
    for g, trajectory in enumerate(group.trajectories):
        stands_G_T[g] = _compared(trajectory, following[g], weights, config, stands_G_T.shape[1])
    advantages_G_T = ESTIMATORS[config.estimator](stands_G_T)
    return [
        GradedTurn(
            turn,
            worth(turn, weights),
            paid=paid[g][t],
            following=float(following[g][t]) if _written(turn) else 0.0,
            advantage=float(advantages_G_T[g, t]),
        )
        for g, trajectory in enumerate(group.trajectories)
        for t, turn in enumerate(trajectory.turns)
    ]


def _compared(
    trajectory: Trajectory,
    returns: npt.NDArray[np.float64],
    weights: RewardWeights,
    config: TrainConfig,
    num_turns: int,
) -> npt.NDArray[np.float64]:
    """What the turns of one conversation are compared by (T); NaN for one that is compared with nothing.

    A conversation that was stopped keeps what it stands at in the turns that it did not need, so that the
    baseline of the others does not depend on who stopped.
    """
    compared_T = np.zeros(num_turns)
    compared_T[: len(returns)] = returns
    if config.credit == "progress":
        values = _worths(trajectory, weights)[0]
        compared_T += [*given(values), *[values[-1]] * (num_turns - len(values))]
    regressed = _regressions(trajectory) if config.mask_regressions else ()
    for t, turn in enumerate(trajectory.turns):
        if not _written(turn) or t in regressed:
            compared_T[t] = np.nan
    return compared_T


def _written(turn: Turn) -> bool:
    """Whether the policy could answer at all: a prompt may be longer than its context."""
    return turn.completion.finish_reason != "error"


def _regressions(trajectory: Trajectory) -> set[int]:
    """Turns without a correct kernel after one that had it (`mask_void_turn` of Dr. Kernel's code).

    Membership depends on the turn's own outcome, so the baseline does too: a policy is never told off for
    breaking what worked. Here to be compared with.
    """
    correct = [turn.evaluation.correct for turn in trajectory.turns]
    return {t for t, now in enumerate(correct) if not now and any(correct[:t])}
