"""Choice of problems for practice, and for the curriculum's measurements."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernel_core.config import ProblemsConfig, TrainConfig
from kernel_core.dialogue.rollout import seed_of
from kernel_core.errors import ConfigError
from kernel_core.gym.judge.audited_problems import load_audited
from kernel_core.problems.file_splits import file_split
from kernel_core.problems.generators import ENDLESS_SUITES, generator_of
from kernel_core.problems.load import load_problems, shares_of
from kernel_core.records import Problem
from kernel_core.reward.curriculum import CurriculumState, choose_families, learnability
from kernel_core.store import Store

_PROBE_SEED = 1_000_003
"""Seed of the validation draw: the same problems for every run, so that curves of runs can be compared."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _MixPart:
    """One suite: endless, or a fixed set of problems."""

    settings: ProblemsConfig
    weight: float
    fixed: tuple[Problem, ...] = ()
    """Practice problems of a suite of files; empty for a generator."""
    probes: tuple[Problem, ...] = ()
    """Validation problems of a suite of files."""


@dataclass(frozen=True)
class Practice:
    """Problems by step, from one suite or from several by weight."""

    config: TrainConfig
    parts: tuple[_MixPart, ...]

    @classmethod
    def open(cls, config: TrainConfig, memory: Store | None = None) -> Practice:
        """Load the suites of files; `memory` keeps which problems pay for nothing. Raises `ConfigError` where
        they hold fewer problems than a step takes."""
        settings = config.problems
        if settings.mix:
            shares_of(settings)  # refuses settings that narrow one suite
        suites = [(entry.suite, entry.weight) for entry in settings.mix] or [(settings.suite, 1.0)]
        parts = []
        for suite, weight in suites:
            own = settings.model_copy(update={"suite": suite, "mix": ()})
            parts.append(_opened(own, weight, config.problems_per_step, memory))
        num_fixed = sum(len(part.fixed) for part in parts)
        if all(part.fixed for part in parts) and num_fixed < config.problems_per_step:
            raise ConfigError(
                f"problems.suite = {', '.join(suite for suite, _ in suites)} gives {num_fixed} problems, "
                f"but a step takes {config.problems_per_step} different ones; lower problems_per_step"
            )
        return cls(config, tuple(parts))

    def choose(
        self, state: CurriculumState, step: int, draw: int = 0, taken: Sequence[Problem] = ()
    ) -> list[Problem]:
        """Choose the problems of one step, all different, by learnability; the same arguments give the same
        choice.

        `draw` counts further draws of the same step, which leave out what is `taken`.
        """
        seed = seed_of(self.config.seed, self.config.problems.seed, "practice", step, *[draw] * (draw > 0))
        used = {problem.id for problem in taken}
        if len(self.parts) == 1:
            return _drawn(self.parts[0], state, self.config.problems_per_step, seed, used)
        chosen: list[Problem] = []
        for part, count in zip(self.parts, self._counts(seed, used), strict=True):
            part_seed = seed_of(seed, part.settings.suite)
            chosen += _drawn(part, state, count, part_seed, used | {problem.id for problem in chosen})
        order = np.random.default_rng(seed_of(seed, "order")).permutation(len(chosen))
        return [chosen[index] for index in order]

    def probe_problems(self) -> list[Problem]:
        """Return the validation problems of each suite, by its weight."""
        num_probes = self.config.curriculum.probe_problems
        total = sum(part.weight for part in self.parts)
        return [
            problem
            for part in self.parts
            for problem in _probes(part, max(1, round(num_probes * part.weight / total)))
        ]

    def _counts(self, seed: int, used: set[str]) -> list[int]:
        """Return each suite's number of problems in a step; others make up the shortage of a small one."""
        weights = np.array([part.weight for part in self.parts])
        rng = np.random.default_rng(seed)
        free = [
            sum(problem.id not in used for problem in part.fixed)
            if part.fixed
            else self.config.problems_per_step
            for part in self.parts
        ]
        counts = [0] * len(self.parts)
        for _ in range(self.config.problems_per_step):
            open_weights = weights * [count < limit for count, limit in zip(counts, free, strict=True)]
            if not open_weights.any():
                break
            counts[int(rng.choice(len(counts), p=open_weights / open_weights.sum()))] += 1
        return counts


def _opened(
    settings: ProblemsConfig, weight: float, problems_per_step: int, memory: Store | None
) -> _MixPart:
    if settings.suite in ENDLESS_SUITES:
        return _MixPart(settings, weight)
    problems = load_audited(settings, memory).problems
    if settings.split == "all":
        return _MixPart(settings, weight, tuple(problems), tuple(problems))
    probes = [problem for problem in problems if file_split(problem.id) == "validation"]
    if settings.file_split == "train":
        probes = load_audited(settings.model_copy(update={"file_split": "validation"}), memory).problems
        return _MixPart(settings, weight, tuple(problems), tuple(probes))
    practised = [problem for problem in problems if file_split(problem.id) != "validation"]
    if not probes or len(practised) < problems_per_step:
        logger.warning("%s has too few problems to keep some for probes; it is probed on all", settings.suite)
        return _MixPart(settings, weight, tuple(problems), tuple(problems))
    return _MixPart(settings, weight, tuple(practised), tuple(probes))


def _drawn(part: _MixPart, state: CurriculumState, count: int, seed: int, used: set[str]) -> list[Problem]:
    return _of_files(part, state, count, seed, used) if part.fixed else _made(part, state, count, seed, used)


def _made(part: _MixPart, state: CurriculumState, count: int, seed: int, used: set[str]) -> list[Problem]:
    generator, requested = generator_of(part.settings.suite), part.settings.families
    families = [name for name in generator.trained if not requested or name in requested]
    chosen = choose_families(state, families, count, seed) if count else []
    made = {
        family: iter(generator.draw("train", number, seed_of(seed, family), (family,)))
        for family, number in Counter(chosen).items()
    }
    # In the order drawn, which is shuffled: a further draw is cut to what it is wanted for.
    drawn = [next(made[family]).problem for family in chosen]
    return [problem for problem in drawn if problem.id not in used]


def _of_files(part: _MixPart, state: CurriculumState, count: int, seed: int, used: set[str]) -> list[Problem]:
    free = [problem for problem in part.fixed if problem.id not in used]
    families = sorted({problem.family for problem in free})
    chance = dict(zip(families, learnability(state.teaches, families), strict=True))
    sizes = Counter(problem.family for problem in free)
    weights = np.array([chance[problem.family] / sizes[problem.family] for problem in free])
    count = min(count, len(free))
    if not count:
        return []
    picked = np.random.default_rng(seed).choice(len(free), count, replace=False, p=weights / weights.sum())
    return [free[index] for index in picked]


def _probes(part: _MixPart, limit: int) -> list[Problem]:
    if part.fixed:
        return list(part.probes[:limit])
    validation = ProblemsConfig(
        suite=part.settings.suite,
        split="validation",
        families=part.settings.families,
        limit=limit,
        seed=_PROBE_SEED,
    )
    return load_problems(validation)
