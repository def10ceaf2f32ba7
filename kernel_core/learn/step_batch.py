"""Experience of one step: groups of judged conversations, redrawn where a group has nothing to teach.

In a group with equal rewards in all turns, every advantage is 0. Such groups stay in the tables and in what
the curriculum observes, which they inform; in the update, other problems take their place, up to
`resample_rounds` times.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kernel_core.config import RewardWeights, TrainConfig
from kernel_core.dialogue.rollout import Rollouts
from kernel_core.dialogue.turns import TrajectoryGroup
from kernel_core.errors import GymUnavailable
from kernel_core.learn.credit import GradedTurn, grade, varies
from kernel_core.records import Problem

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Experience:
    """Problems, conversations and grades of a step, in the order of the draws."""

    problems: list[Problem]
    rollouts: Rollouts
    graded: list[list[GradedTurn]]
    """One list per group."""
    num_resampled: int = 0
    """Problems drawn in place of groups that had nothing to teach."""

    def learned(self, problems_per_step: int) -> list[list[GradedTurn]]:
        """Return the groups of the update, in order: all that vary, filled up with others to a step's size.

        Those that others took the place of leave it, so that the step's sum is divided by as many groups
        as ever, however often was drawn.
        """
        spare = max(problems_per_step - sum(varies(group) for group in self.graded), 0)
        groups = []
        for group in self.graded:
            if varies(group) or (group and spare):
                groups.append(group)
                spare -= not varies(group)
        return groups


def gather(
    config: TrainConfig,
    weights: RewardWeights,
    choose: Callable[[int, Sequence[Problem]], list[Problem]],
    converse: Callable[[list[Problem], int], Rollouts],
) -> Experience:
    """Gather the step's problems, and further rounds in place of groups with nothing to teach.

    `choose(round, taken)` draws the problems of a step; of a later round, any number that were not taken.
    `converse(problems, round)` holds the conversations of one round. Raises `GymUnavailable` when the first
    round is not answered at all; a later one is given up then, and counted as left out.
    """
    experience = _held(choose(0, ()), 0, config, weights, converse)
    for again in range(1, config.resample_rounds + 1):
        missing = config.problems_per_step - sum(varies(group) for group in experience.graded)
        drawn = choose(again, experience.problems)[: max(missing, 0)]
        if not drawn:
            break
        try:
            more = _held(drawn, again, config, weights, converse)
        except GymUnavailable as error:
            log.warning("%d problems drawn again are left out: %s", len(drawn), error)
            lost = experience.rollouts.num_left_out + len(drawn) * config.group_size
            return replace(experience, rollouts=replace(experience.rollouts, num_left_out=lost))
        experience = Experience(
            problems=experience.problems + more.problems,
            rollouts=_joined(experience.rollouts, more.rollouts),
            graded=experience.graded + more.graded,
            num_resampled=experience.num_resampled + len(drawn),
        )
    return experience


def _held(
    problems: list[Problem],
    number: int,
    config: TrainConfig,
    weights: RewardWeights,
    converse: Callable[[list[Problem], int], Rollouts],
) -> Experience:
    rollouts = converse(problems, number)
    groups: Sequence[TrajectoryGroup] = rollouts.groups
    return Experience(problems, rollouts, grade(groups, weights, config))


def _joined(first: Rollouts, second: Rollouts) -> Rollouts:
    return Rollouts(
        groups=first.groups + second.groups,
        samples=first.samples | second.samples,
        num_left_out=first.num_left_out + second.num_left_out,
        num_retried=first.num_retried + second.num_retried,
        num_judged=first.num_judged + second.num_judged,
        seconds_judging=first.seconds_judging + second.seconds_judging,
        compared=first.compared + second.compared,
    )
