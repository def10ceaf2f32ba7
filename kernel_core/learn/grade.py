"""From judged conversations to what is learned from them: rewards, returns, advantages and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernel_core.advantages import ESTIMATORS
from kernel_core.config import RewardWeights, TrainConfig
from kernel_core.learn.batch import Row
from kernel_core.records import Group, RewardTerms, Trajectory, Turn
from kernel_core.returns import given, progress, returns_of
from kernel_core.rewards import reward, worth
from kernel_core.rollout import Rollouts


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


def rows_of(graded: Sequence[Sequence[GradedTurn]], rollouts: Rollouts) -> list[Row]:
    """A training row for each turn that the policy really wrote."""
    rows = []
    for group in graded:
        for one in group:
            sample = rollouts.samples[one.turn.problem_id, one.turn.trajectory, one.turn.index]
            if sample.prompt_ids is None or sample.token_ids is None:
                raise ValueError(f"policy {sample.policy_version} gives no token ids; training needs them")
            if len(sample.token_ids):
                rows.append(Row(sample.prompt_ids, sample.token_ids, one.advantage, sample.logprobs))
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
    paid = [paid_rewards(one, weights, config) for one in group.trajectories]
    returns_G_T = np.full((len(paid), max(map(len, paid))), np.nan)
    given_G_T = np.zeros_like(returns_G_T)
    for g, trajectory in enumerate(group.trajectories):
        returns = returns_of(paid[g], config.gamma, config.returns)
        written = [turn.completion.finish_reason != "error" for turn in trajectory.turns]
        returns_G_T[g, : len(written)] = np.where(written, returns, np.nan)
        if config.credit == "progress":
            given_G_T[g, : len(written)] = given(_worths(trajectory, weights)[0])
    advantages_G_T = ESTIMATORS[config.estimator](returns_G_T + given_G_T)
    return [
        GradedTurn(
            turn,
            worth(turn, weights),
            paid=paid[g][t],
            following=float(np.nan_to_num(returns_G_T[g, t])),
            advantage=float(advantages_G_T[g, t]),
        )
        for g, trajectory in enumerate(group.trajectories)
        for t, turn in enumerate(trajectory.turns)
    ]
