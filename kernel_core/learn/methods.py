"""Four methods over the same problems, answers and verdicts: RL, and the controls that it is compared with.

| `method`           | learns from                                                                      |
|--------------------|----------------------------------------------------------------------------------|
| `rl`               | the advantages of all turns                                                      |
| `expert_iteration` | the best correct kernels of each problem, supervised (see `winners.py`)          |
| `frozen`           | nothing: the policy that it begins with, so that a run is best of N              |
| `rl_shuffled`      | advantages that belong to other answers of the same group: it must learn nothing |

All of them draw problems, sample, judge, probe and change stages by the same code and seeds, and stop at the
same number of judged answers (`candidates`) or minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kernel_core.config import TrainConfig
from kernel_core.dialogue.rollout import seed_of
from kernel_core.errors import ConfigError
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.credit import GradedTurn, rows_of, written
from kernel_core.learn.step_batch import Experience
from kernel_core.learn.winners import Winners
from kernel_core.problems.generators import ENDLESS_SUITES
from kernel_core.reward.curriculum import check_stages


def check_settings(config: TrainConfig) -> None:
    """Raise `ConfigError` for settings under which nothing could be learned."""
    check_stages(config.curriculum)
    if config.rollout.sampling.temperature == 0:
        raise ConfigError("rollout.sampling.temperature = 0: greedy answers are all alike; use 1.0")
    if config.sample_ahead and config.rollout.overlap is False:
        raise ConfigError(
            "sample_ahead judges during the update, and rollout.overlap is off: give the judge a GPU of "
            "its own (placement.judge), or set rollout.overlap=true"
        )
    if config.best_kernels and (config.problems.mix or config.problems.suite in ENDLESS_SUITES):
        raise ConfigError("best_kernels keeps kernels of problems of files; set problems.suite=FOLDER")
    if config.returns == "max" and config.credit == "progress":
        raise ConfigError("returns = max picks the best kernel, not the best change; set credit=absolute")


def credited(gathered: Experience, config: TrainConfig, step: int) -> Experience:
    """Return the step with the advantages that its method learns from."""
    if config.method != "rl_shuffled":
        return gathered
    seed = seed_of(config.seed, "shuffle", step)
    return replace(gathered, graded=[shuffled(group, seed) for group in gathered.graded])


def shuffled(group: Sequence[GradedTurn], seed: int) -> list[GradedTurn]:
    """Exchange the rewards of a group's answers at the same turn, at random.

    Every order is as likely as any other, so an answer may keep its own. Were that ruled out, the others'
    rewards would still tell something of the answer. Across turns nothing is exchanged: a conversation that
    was stopped early has no later turn, and a late reward in an early place would tell of it.
    """
    result = list(group)
    for index in sorted({member.turn.index for member in group}):
        places = [
            i
            for i, member in enumerate(group)
            if member.turn.index == index and written(member.turn) and not member.masked
        ]
        if not places:
            continue
        draw = np.random.default_rng(seed_of(seed, group[places[0]].turn.problem_id, index))
        for place, source in zip(places, draw.permutation(places), strict=True):
            paid_as = group[source]
            result[place] = replace(
                group[place],
                paid=paid_as.paid,
                following=paid_as.following,
                advantage=paid_as.advantage,
            )
    return result


def rows_to_learn(
    gathered: Experience, config: TrainConfig, winners: Winners, step: int, *, by_speed: bool
) -> list[TokenRow]:
    """Return the rows of the step's update. Expert iteration keeps the step's winners first, then replays.

    `by_speed` ranks the winners of this step by speed-up, for a stage that pays for speed.
    """
    match config.method:
        case "frozen":
            return []
        case "expert_iteration":
            winners.add(step, gathered.graded, gathered.rollouts, by_speed=by_speed)
            num_answers = config.problems_per_step * config.group_size * config.rollout.turns
            return winners.rows(step, num_answers, seed_of(config.seed, "replay", step))
        case _:
            return rows_of(
                gathered.learned(config.problems_per_step),
                gathered.rollouts,
                config.profile_rejection,
                seed=seed_of(config.seed, "profile rejection", step),
            )
