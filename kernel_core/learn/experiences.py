"""Experience of each step: gathered on demand, or ahead, during the update of the step before.

With `sample_ahead` the answers of step t + 1 are written and judged during the update of step t, by the
weights that were published before it. They are one update old when they are learned from; the importance
weights of `mismatch` correct for it. Nothing is published before all of them are there. Their problems and
their stage are those that the curriculum knew at the beginning.

No checkpoint holds what was gathered ahead. A run that goes on gathers its first step anew, with the newest
weights.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

import torch

from kernel_core.config import StageConfig, TrainConfig
from kernel_core.learn.conversations import Conversations, needs_speed
from kernel_core.learn.methods import credited
from kernel_core.learn.phase_timer import Clock
from kernel_core.learn.problem_sampler import Practice
from kernel_core.learn.step_batch import Experience, gather
from kernel_core.progress import silent
from kernel_core.reward.curriculum import CurriculumState


class Gathered(NamedTuple):
    """Experience of a step, and the stage that rewarded it."""

    stage: StageConfig
    experience: Experience


class Experiences:
    """Gathers for one run."""

    def __init__(self, config: TrainConfig, practice: Practice, conversations: Conversations) -> None:
        self._config, self._practice, self._conversations = config, practice, conversations
        self._thread = ThreadPoolExecutor(1, "ahead") if config.sample_ahead else None
        self._ahead: tuple[int, Future[Gathered]] | None = None

    def of(self, step: int, curriculum: CurriculumState, clock: Clock) -> Gathered:
        """Return a step's experience, gathered ahead or now. Raises what went wrong."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == step:
            gathered = ahead[1].result()
            clock.finish("rollout")
            return gathered
        return self._gather(step, curriculum, clock)

    def begin(self, step: int, curriculum: CurriculumState) -> None:
        """Begin to gather a step ahead, if that is wanted and the run has such a step."""
        if self._thread is not None and step <= self._config.steps:
            num_threads = torch.get_num_threads()
            self._ahead = step, self._thread.submit(self._gather_aside, step, curriculum, num_threads)

    def settle(self) -> None:
        """Wait for what was begun: the sampler must not change meanwhile. An error stays for `of`."""
        if self._ahead is not None:
            wait([self._ahead[1]])

    def forget(self) -> None:
        """Discard what was begun: the run goes on from a checkpoint."""
        self.settle()
        self._ahead = None

    def close(self) -> None:
        """Stop the thread after its current work."""
        self.forget()
        if self._thread is not None:
            self._thread.shutdown()

    def _gather_aside(self, step: int, curriculum: CurriculumState, num_threads: int) -> Gathered:
        torch.set_num_threads(num_threads)  # a number of each thread's own
        return self._gather(step, curriculum, Clock(silent))

    def _gather(self, step: int, curriculum: CurriculumState, clock: Clock) -> Gathered:
        """Sample, judge and grade the step's problems."""
        stage = self._config.curriculum.stages[curriculum.stage_index]
        timing = needs_speed(self._config, stage.weights)
        experience = gather(
            self._config,
            stage.weights,
            lambda draw, taken: self._practice.choose(curriculum, step, draw, taken),
            lambda problems, draw: self._conversations.practise(problems, step, draw, clock, timing=timing),
        )
        return Gathered(stage, credited(experience, self._config, step))
