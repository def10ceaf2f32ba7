"""Problems, conversations and rewards for other trainers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.config import EnvironmentConfig, RewardWeights, RolloutConfig
from kernel_core.dialogue.episode import Episode
from kernel_core.errors import ConfigError, NotFound
from kernel_core.problems.load import load_problems
from kernel_core.records import Problem
from kernel_core.reward.presets import REWARD_PRESETS


@dataclass(frozen=True, slots=True)
class EpisodeSource:
    """Begins episodes."""

    problems: dict[str, Problem]
    """Problems by id, in order."""
    rollout: RolloutConfig
    weights: RewardWeights

    def begin(self, problem_id: str, judge_seed: int | None = None) -> Episode:
        """Begin a conversation about a problem. Raises `NotFound` for an unknown one."""
        if problem_id not in self.problems:
            raise NotFound(f"no problem {problem_id!r} among the {len(self.problems)} of this environment")
        return Episode(self.problems[problem_id], self.rollout, self.weights, judge_seed=judge_seed)

    def draw(self, seed: int | None = None) -> str:
        """Draw the id of a random problem."""
        return random.Random(seed).choice(list(self.problems))


def open_source(config: EnvironmentConfig, problems: Sequence[Problem] | None = None) -> EpisodeSource:
    """Episodes by a config; `problems` replaces those that it names."""
    chosen = load_problems(config.problems) if problems is None else problems
    return EpisodeSource(
        {problem.id: problem for problem in chosen}, config.rollout, _weights(config.rewards)
    )


def _weights(name: str) -> RewardWeights:
    known = {
        f"{preset}/{variant.name}": variant.weights
        for preset, all_ in REWARD_PRESETS.items()
        for variant in all_
    }
    if name not in known:
        raise ConfigError(f"rewards={name!r} is not PRESET/STAGE; known: {', '.join(known)}", "rewards")
    return known[name]
