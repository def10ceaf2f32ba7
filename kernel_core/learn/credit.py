"""Rewards, returns, advantages and training rows from judged conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernel_core.config import RewardWeights, TrainConfig
from kernel_core.dialogue.rollout import Rollouts, seed_of
from kernel_core.dialogue.turns import Trajectory, TrajectoryGroup, Turn
from kernel_core.learn.batch import Ids, TokenRow
from kernel_core.records import RewardTerms
from kernel_core.reward.advantages import ESTIMATORS
from kernel_core.reward.rejection import ProfileRejection, keep_probability
from kernel_core.reward.returns import given, progress, returns_of
from kernel_core.reward.terms import known_own_share, reward, usual_own_share, worth


@dataclass(frozen=True, slots=True)
class GradedTurn:
    """Turn with its reward, return and advantage."""

    turn: Turn
    terms: RewardTerms
    """Reward terms of the kernel by itself."""
    paid: float
    """Reward of the turn within its conversation."""
    following: float
    """Return: discounted rewards from this turn on."""
    advantage: float
    masked: bool = False
    """Left out of loss and baseline: a regression (`mask_regressions`) or truncated (`mask_truncated`)."""


def grade(
    groups: Sequence[TrajectoryGroup], weights: RewardWeights, config: TrainConfig
) -> list[list[GradedTurn]]:
    """Grade every turn of every group under a stage's weights, in order; one list per group."""
    return [_grade_group(group, weights, config) for group in groups]


def varies(group: Sequence[GradedTurn]) -> bool:
    """Return True if anything can be learned from a group: some turn did better than another."""
    return any(graded.advantage != 0.0 for graded in group)


def rows_of(
    graded: Sequence[Sequence[GradedTurn]],
    rollouts: Rollouts,
    profile_rejection: ProfileRejection = "none",
    seed: int = 0,
) -> list[TokenRow]:
    """Build a training row for each turn that the policy wrote; `seed` seeds the draws of rejection."""
    rows = []
    conversations: dict[tuple[str, int], int] = {}
    for graded_turn in (member for group in graded for member in group):
        turn = graded_turn.turn
        key = turn.problem_id, turn.trajectory
        prompt_ids, answer_ids = sampled_ids(rollouts, turn)
        if not len(answer_ids):
            continue
        chance = keep_probability(
            turn.evaluation.correct, known_own_share(turn.evaluation), profile_rejection
        )
        drawn = np.random.default_rng(seed_of(seed, *key, turn.index)).random()
        rows.append(
            TokenRow(
                prompt_ids,
                answer_ids,
                graded_turn.advantage,
                rollouts.samples[*key, turn.index].logprobs,
                conversation=conversations.setdefault(key, len(conversations)),
                kept=bool(drawn < chance) and not graded_turn.masked,
            )
        )
    return rows


def sampled_ids(rollouts: Rollouts, turn: Turn) -> tuple[Ids, Ids]:
    """Return the token ids of a turn's prompt and answer. Raises `ValueError` for a policy without any."""
    sample = rollouts.samples[turn.problem_id, turn.trajectory, turn.index]
    if sample.prompt_ids is None or sample.token_ids is None:
        raise ValueError(f"policy {sample.policy_version} gives no token ids; training needs them")
    return sample.prompt_ids, sample.token_ids


def paid_rewards(
    trajectory: Trajectory, weights: RewardWeights, config: TrainConfig, usual_share: float = 0.0
) -> list[float]:
    """Return the reward of each turn of a conversation, by the configured credit rule."""
    if config.credit == "absolute":
        return [reward(turn, weights, usual_share).total for turn in trajectory.turns]
    worth_T, penalty_T = _worths(trajectory, weights, config, usual_share)
    return progress(worth_T, penalty_T)


def _worths(
    trajectory: Trajectory, weights: RewardWeights, config: TrainConfig, usual_share: float
) -> tuple[list[float], list[float]]:
    """Return the conversation's worth after each turn, without that turn's penalty, and the penalty.

    A turn that could not be written changes nothing: what was handed in before it stays. A truncated turn
    that is masked takes nothing away, so that the turns before it are not pushed down for its length.
    """
    worth_T, penalty_T = list[float](), list[float]()
    for turn in trajectory.turns:
        terms = worth(turn, weights, usual_share)
        before = worth_T[-1] if worth_T else 0.0
        own = terms.total - terms.penalty if written(turn) else before
        worth_T.append(max(before, own) if config.mask_truncated and truncated(turn) else own)
        penalty_T.append(terms.penalty)
    return worth_T, penalty_T


def _grade_group(group: TrajectoryGroup, weights: RewardWeights, config: TrainConfig) -> list[GradedTurn]:
    if not group.trajectories:
        return []
    share = usual_own_share(
        [turn.evaluation for trajectory in group.trajectories for turn in trajectory.turns]
    )
    paid = [paid_rewards(trajectory, weights, config, share) for trajectory in group.trajectories]
    following = [returns_of(rewards, config.gamma, config.returns) for rewards in paid]
    masked = [_masked(trajectory, config) for trajectory in group.trajectories]
    stands_G_T = np.zeros((len(paid), max(map(len, paid))))
    for g, trajectory in enumerate(group.trajectories):
        values = _worths(trajectory, weights, config, share)[0]
        stands_G_T[g] = _compared(trajectory, following[g], values, config, stands_G_T.shape[1])
        stands_G_T[g, list(masked[g])] = np.nan
    advantages_G_T = ESTIMATORS[config.estimator](stands_G_T)
    return [
        GradedTurn(
            turn,
            worth(turn, weights, share),
            paid=paid[g][t],
            following=float(following[g][t]) if written(turn) else 0.0,
            advantage=float(advantages_G_T[g, t]),
            masked=t in masked[g],
        )
        for g, trajectory in enumerate(group.trajectories)
        for t, turn in enumerate(trajectory.turns)
    ]


def _compared(
    trajectory: Trajectory,
    returns: npt.NDArray[np.float64],
    values: Sequence[float],
    config: TrainConfig,
    num_turns: int,
) -> npt.NDArray[np.float64]:
    """Return the values by which the turns of a conversation are compared (T); NaN leaves a turn out.

    `values` is what it stands at after each turn. By progress, one that was stopped keeps that in the turns
    that it did not need, so that the baseline of the others does not depend on which conversations stopped.
    By absolute credit such a turn is worth nothing known, and to `kevin`, which compares all turns as one
    population, it would be a turn more: there it is left out.
    """
    compared_T = np.full(num_turns, np.nan)
    compared_T[: len(returns)] = returns
    if config.credit == "progress":
        compared_T[: len(returns)] += given(values)
        if config.estimator != "kevin":
            compared_T[len(returns) :] = values[-1]
    for t, turn in enumerate(trajectory.turns):
        if not written(turn):
            compared_T[t] = np.nan
    return compared_T


def written(turn: Turn) -> bool:
    """Return True if the policy could answer at all: a prompt may exceed its context."""
    return turn.completion.finish_reason != "error"


def _masked(trajectory: Trajectory, config: TrainConfig) -> set[int]:
    """Return the turns that enter neither the loss nor a baseline.

    A truncated answer is masked whatever its verdict: overlong filtering of DAPO (Yu et al. 2025, arXiv
    2503.14476, section 3.4).
    """
    masked = _regressions(trajectory) if config.mask_regressions else set()
    if config.mask_truncated:
        masked |= {t for t, turn in enumerate(trajectory.turns) if truncated(turn)}
    return masked


def truncated(turn: Turn) -> bool:
    """Return True if the token limit ended the answer."""
    return turn.completion.finish_reason == "length"


def _regressions(trajectory: Trajectory) -> set[int]:
    """Turns without a correct kernel after one that had it (`mask_void_turn` of Dr. Kernel's code).

    Membership depends on the turn's own outcome, so the baseline does too: a policy is never told off for
    breaking what worked. Here to be compared with.
    """
    correct = [turn.evaluation.correct for turn in trajectory.turns]
    return {t for t, now in enumerate(correct) if not now and any(correct[:t])}
