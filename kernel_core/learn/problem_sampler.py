"""Which problems a step practises on, and which the curriculum is measured on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernel_core.config import ProblemsConfig, TrainConfig
from kernel_core.dialogue.rollout import seed_of
from kernel_core.errors import ConfigError
from kernel_core.problems.families import TRAINED
from kernel_core.problems.generate import generate
from kernel_core.problems.load import load_problems
from kernel_core.records import Problem
from kernel_core.reward.curriculum import CurriculumState, choose_families, learnability

_PROBE_SEED = 1_000_003
"""Of the validation draw: the same problems for every run, so that curves of runs can be compared."""


@dataclass(frozen=True)
class Practice:
    """Problems by step: endless from the generator, or drawn from a fixed set."""

    config: TrainConfig
    fixed: tuple[Problem, ...] = ()
    """Of a suite of files; empty for the generator."""

    @classmethod
    def open(cls, config: TrainConfig) -> Practice:
        """Load the fixed set, if the suite is one."""
        if config.problems.suite == "generated":
            return cls(config)
        problems = tuple(load_problems(config.problems))
        if len(problems) < config.problems_per_step:
            raise ConfigError(
                f"problems.suite = {config.problems.suite} gives {len(problems)} problems, but a step takes "
                f"{config.problems_per_step} different ones; lower problems_per_step"
            )
        return cls(config, problems)

    def choose(
        self, state: CurriculumState, step: int, draw: int = 0, taken: Sequence[Problem] = ()
    ) -> list[Problem]:
        """The problems of one step, all different, by learnability; the same for the same arguments.

        `draw` counts further draws of the same step, which leave out what is `taken`.
        """
        settings = self.config.problems
        seed = seed_of(self.config.seed, settings.seed, "practice", step, *[draw] * (draw > 0))
        used = {problem.id for problem in taken}
        if self.fixed:
            return self._drawn(state, seed, used)
        families = [name for name in TRAINED if not settings.families or name in settings.families]
        chosen = choose_families(state, families, self.config.problems_per_step, seed)
        made = {
            family: iter(generate("train", count, seed_of(seed, family), (family,)))
            for family, count in Counter(chosen).items()
        }
        # In the order drawn, which is shuffled: a further draw is cut to what it is wanted for.
        drawn = [next(made[family]).problem for family in chosen]
        return [problem for problem in drawn if problem.id not in used]

    def probe_problems(self) -> list[Problem]:
        """The validation problems; of a suite of files, which has no split of its own, the first of it."""
        wanted = self.config.curriculum.probe_problems
        if self.fixed:
            return list(self.fixed[:wanted])
        validation = ProblemsConfig(
            split="validation", families=self.config.problems.families, limit=wanted, seed=_PROBE_SEED
        )
        return load_problems(validation)

    def _drawn(self, state: CurriculumState, seed: int, used: set[str]) -> list[Problem]:
        free = [problem for problem in self.fixed if problem.id not in used]
        families = sorted({problem.family for problem in free})
        chance = dict(zip(families, learnability(state.teaches, families), strict=True))
        sizes = Counter(problem.family for problem in free)
        weights = np.array([chance[problem.family] / sizes[problem.family] for problem in free])
        count = min(self.config.problems_per_step, len(free))
        if not count:
            return []
        picked = np.random.default_rng(seed).choice(
            len(free), count, replace=False, p=weights / weights.sum()
        )
        return [free[index] for index in picked]
