"""Experience of each step: gathered on demand, or ahead, during the update of the step before.

A probe and the first answers of the step that follows it are written by the same weights. They are one batch,
because decoding a few answers alone takes as long as decoding many. If the probe changes the stage so that
answers need times, they are held again.

With `sample_ahead` the answers of step t + 1 are written and judged during the update of step t, by the
weights that were published before it. They are one update old when they are learned from; the importance
weights of `mismatch` correct for it. Nothing is published before all of them are there. Their problems and
their stage are those that the curriculum knew at the beginning.

No checkpoint holds what was gathered ahead. A run that goes on gathers its first step anew, with the newest
weights and in the same batches.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

import torch

from kernel_core.config import StageConfig, TrainConfig
from kernel_core.dialogue.rollout import Rollouts
from kernel_core.learn.conversations import Conversations, needs_speed
from kernel_core.learn.methods import credited
from kernel_core.learn.metrics import probe_of
from kernel_core.learn.phase_timer import Clock
from kernel_core.learn.problem_sampler import Practice
from kernel_core.learn.step_batch import Experience, gather
from kernel_core.progress import silent
from kernel_core.records import Problem
from kernel_core.reward.curriculum import CurriculumState, Probe


class Gathered(NamedTuple):
    """Experience of a step, and the stage that rewarded it."""

    stage: StageConfig
    experience: Experience


class _Written(NamedTuple):
    """First answers of a step, held together with the probe of the step before."""

    step: int
    timing: bool
    rollouts: Rollouts
    seconds: dict[str, float]


class Experiences:
    """Gathers for one run."""

    def __init__(self, config: TrainConfig, practice: Practice, conversations: Conversations) -> None:
        self._config, self._practice, self._conversations = config, practice, conversations
        self._thread = ThreadPoolExecutor(1, "ahead") if config.sample_ahead else None
        self._ahead: tuple[int, Future[Gathered]] | None = None
        self._written: _Written | None = None

    def probe(self, step: int, curriculum: CurriculumState, clock: Clock) -> Probe:
        """Measure the policy after `step`.

        The answers of the step that follows are written in the same batch, if there is such a step and it is
        not written ahead; its row has the seconds.
        """
        if self._thread is not None or step >= self._config.steps:
            draws = [self._conversations.probing(self._practice.probe_problems(), step)]
            [probed] = self._conversations.hold(draws, clock.phase("probe"))
            clock.finish("probe")
            return self._probe_of(probed, step)
        timing = needs_speed(self._config, self._stage(curriculum).weights)
        shared = Clock(clock.shown)
        problems = self._practice.choose(curriculum, step + 1)
        rollouts, probed = self._begun(problems, step + 1, shared, timing=timing)
        clock.pass_over()
        self._written = _Written(step + 1, timing, rollouts, dict(shared.seconds))
        return self._probe_of(probed, step)

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
        self._ahead = self._written = None

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
        stage = self._stage(curriculum)
        timing = needs_speed(self._config, stage.weights)

        def converse(problems: list[Problem], again: int) -> Rollouts:
            if again == 0:
                return self._first(problems, step, clock, timing=timing)
            draws = [self._conversations.practice(problems, step, again, timing=timing)]
            [rollouts] = self._conversations.hold(draws, clock.phase())
            clock.finish("rollout")
            return rollouts

        experience = gather(
            self._config,
            stage.weights,
            lambda draw, taken: self._practice.choose(curriculum, step, draw, taken),
            converse,
        )
        return Gathered(stage, credited(experience, self._config, step))

    def _first(self, problems: list[Problem], step: int, clock: Clock, *, timing: bool) -> Rollouts:
        """Return the answers that were written with the probe, if they are judged as this step needs them."""
        written, self._written = self._written, None
        if written is not None and (written.step, written.timing) == (step, timing):
            clock.add(written.seconds)
            return written.rollouts
        return self._begun(problems, step, clock, timing=timing)[0]

    def _begun(
        self, problems: list[Problem], step: int, clock: Clock, *, timing: bool
    ) -> tuple[Rollouts, ...]:
        """Hold the first conversations of a step, and those of the probe that is due before it."""
        draws = [self._conversations.practice(problems, step, 0, timing=timing)]
        if self._thread is None and (step - 1) % self._config.curriculum.probe_every == 0:
            draws.append(self._conversations.probing(self._practice.probe_problems(), step - 1))
        rollouts, *probed = self._conversations.hold(draws, clock.phase())
        clock.finish("rollout")
        return rollouts, *probed

    def _probe_of(self, rollouts: Rollouts, step: int) -> Probe:
        return probe_of(rollouts.groups, step, self._conversations.kind, rollouts.num_left_out)

    def _stage(self, curriculum: CurriculumState) -> StageConfig:
        return self._config.curriculum.stages[curriculum.stage_index]
