"""RL loop: practise, judge, reward, update, measure, checkpoint.

It resumes after a kill at any point. Kill it anywhere; it goes on.

A step works from the newest checkpoint's state alone, and everything that it writes comes before its own
checkpoint is sealed. So a killed run repeats at most the steps since then, and on a CPU repeats them bit
for bit: all draws are seeded by what they belong to, and the number of threads is part of the checkpoint.
"""

from __future__ import annotations

import contextlib
import logging

import torch

from kernel_core.config import TrainConfig
from kernel_core.errors import ConfigError
from kernel_core.evaluation.metrics import SpeedKind, in_words
from kernel_core.gym.contract.requests import Gym
from kernel_core.learn import checkpoint, step_metrics
from kernel_core.learn.alarms import Alarm, AlarmKind
from kernel_core.learn.conversations import Conversations
from kernel_core.learn.experiences import Experiences
from kernel_core.learn.learner import open_learner, rate
from kernel_core.learn.methods import check_settings, rows_to_learn
from kernel_core.learn.metrics import measure
from kernel_core.learn.phase_timer import Clock, repeatable
from kernel_core.learn.problem_sampler import Practice
from kernel_core.learn.run_log import Journal
from kernel_core.learn.saver import Saver
from kernel_core.learn.winners import Winners
from kernel_core.policy.publish import Publisher
from kernel_core.policy.sampler import Sampler, open_sampler
from kernel_core.policy.trainable import Trainable
from kernel_core.progress import Progress, silent
from kernel_core.retrieval.protocol import Retriever
from kernel_core.reward.curriculum import CurriculumState, Probe, advance, observe, observe_groups
from kernel_core.store import Store, digest_of

log = logging.getLogger(__name__)


class Trainer:
    """RL on one policy. `while not trainer.done: trainer.step()`."""

    def __init__(
        self,
        config: TrainConfig,
        store: Store,
        policy: Trainable,
        gym: Gym,
        retriever: Retriever | None = None,
        progress: Progress = silent,
        sampler: Sampler | None = None,
        memory: Store | None = None,
    ) -> None:
        """`policy` holds the weights that RL begins with; a checkpoint in `store` replaces them. Without a
        `sampler` the one that the config names writes the rollouts."""
        check_settings(config)
        policy.check(config.rollout)
        self.config = config
        self.policy = policy
        self._store, self._progress = store, progress
        self._kind: SpeedKind = "measured" if config.gym.device == "cuda" else "predicted"
        self._speedups = in_words(self._kind, config.gym.predict_gpu)
        practice = Practice.open(config, memory)
        self._journal = Journal(store)
        self._winners = Winners(store)
        self._name = digest_of([config.model_dump(mode="json"), policy.version])[:8]
        self._learner = open_learner(config, policy, store)
        self._sampler = sampler or open_sampler(config, policy, store)
        self._conversations = Conversations(config, self._sampler, gym, retriever, self._kind)
        self._experiences = Experiences(config, practice, self._conversations)
        self._publisher = Publisher(self._sampler, policy, config.sampler.max_gap)
        self._saver = Saver(store, background=config.policy_on_gpu)
        self._saved_at_s = 0.0
        self._step = -1
        self._curriculum = CurriculumState()
        self._seconds = 0.0
        self._num_judged = 0
        self._saving_s = 0.0
        self._num_threads = torch.get_num_threads()
        self._unfinished = False
        self._published = False
        self._stopped_by: list[AlarmKind] = []
        self._go_on()

    @property
    def step_number(self) -> int:
        """Steps done so far."""
        return max(self._step, 0)

    @property
    def curriculum(self) -> CurriculumState:
        """Return the curriculum state."""
        return self._curriculum

    @property
    def done(self) -> bool:
        """Return True if the last step, minute or judged answer is over, or an alarm ended the run."""
        minutes, candidates = self.config.minutes, self.config.candidates
        out_of_time = minutes is not None and self._seconds >= 60 * minutes
        is_spent = out_of_time or (candidates is not None and self._num_judged >= candidates)
        stopped = any(kind in self.config.alarms_stop for kind in self._stopped_by)
        return stopped or self._step >= self.config.steps or (self._step >= 1 and is_spent)

    def step(self) -> step_metrics.StepReport:
        """Run one step.

        After an error in it (the gym's, a full disk) call it again: it begins anew from the newest
        checkpoint, as a new process would.
        """
        if self.done:
            raise ValueError(f"training is done after step {self._step}")
        if self._unfinished:
            self._go_on()
        self._unfinished = True
        with repeatable(self._num_threads, self.policy.device):
            if not self._published:
                self._publisher.publish()
                self._published = True
            if self._step < 0:
                self._begin()
            report = self._one_step()
        self._unfinished = False
        return report

    def close(self) -> None:
        """Stop what the trainer started: a checkpoint in work, connections to a sampler, other learners."""
        with contextlib.ExitStack() as ends:  # all of it, in this order reversed, also after an error in one
            for part in (self._learner, self._sampler, self._saver, self._experiences):
                ends.callback(part.close)

    def _go_on(self) -> None:
        """Take up the newest checkpoint, and forget whatever was written after it."""
        self._saver.wait()
        self._experiences.forget()
        folder = checkpoint.newest(self._store)
        if folder is None:
            self._step, self._curriculum, self._stopped_by = -1, CurriculumState(), []
            self._num_judged = 0
        else:
            state = checkpoint.restore(self._store.child(folder), self.policy, self._learner.optimiser)
            if (method := state.get("method", "rl")) != self.config.method:
                configured = self.config.method
                raise ConfigError(
                    f"this run has method={method}; another run name is needed for {configured}"
                )
            self._step = state["step"]
            self._name = state["name"]
            self._seconds = self._saved_at_s = state["seconds"]
            self._num_judged = state.get("num_judged", 0)
            # An alarm's advice may be another rate: a run with that rate goes on.
            as_before = state.get("lr") == self.config.lr
            self._stopped_by = state.get("stopped_by", []) if as_before else []
            self._num_threads = state["num_threads"]
            state["curriculum"].pop("pass_rates", None)  # of checkpoints that an earlier version wrote
            self._curriculum = CurriculumState.model_validate(state["curriculum"])
            checkpoint.list_checkpoint(self._store, self._step, self.policy.version)
            log.info("going on after step %d, stage %s", self._step, self._stage)
            self._learner.on_restore(self._store.child(folder))
        self._published = False
        self._journal.go_back(self._step)

    def _begin(self) -> None:
        """Prepare the first step: keep the reference, and measure the initial policy."""
        self._learner.begin()
        clock = Clock(self._progress)
        probe = self._experiences.probe(0, self._curriculum, clock)
        self._curriculum = observe(self._curriculum, probe, self.config.curriculum)
        words = {"stage": self._stage, "speedups": self._speedups}
        self._journal.write_metrics(0, words, step_metrics.probe_metrics(probe))
        self._step = 0
        self._seconds += clock.total
        self._save(probe)
        self._saved(clock)

    def _one_step(self) -> step_metrics.StepReport:
        step, clock = self._step + 1, Clock(self._progress)
        stage, gathered = self._experiences.of(step, self._curriculum, clock)
        self._experiences.begin(step + 1, self._curriculum)
        by_speed = stage.weights.speed != 0.0
        rows = rows_to_learn(gathered, self.config, self._winners, step, by_speed=by_speed)
        update = self._learner.update(rows, step, clock.phase())
        if update.num_optimiser_steps:
            self.policy.set_version(f"{self._name}@{step}")
        clock.finish("update")
        self._experiences.settle()
        clock.finish("rollout")
        publication = self._publisher.publish()
        clock.finish("publish")

        self._curriculum = observe_groups(self._curriculum, step_metrics.varied(gathered))
        probe = None
        if step % self.config.curriculum.probe_every == 0:
            probe = self._experiences.probe(step, self._curriculum, clock)
        self._curriculum, event = advance(self._curriculum, probe, step, self.config.curriculum)
        if event is not None:
            log.info("step %d: %s from %s to %s (%s)", *event.model_dump(exclude_none=True).values())
        self._num_judged += gathered.rollouts.num_judged
        done = step_metrics.Finished(
            step=step,
            stage=stage.name,
            gathered=gathered,
            measured=measure(gathered.graded, self._kind, self._conversations.is_timed(stage.weights)),
            update=update,
            publication=publication,
            probe=probe,
            event=event,
            num_judged=self._num_judged,
            lr=rate(self.config, step),
        )
        alarms = self._write(done, clock)
        self._stopped_by = [alarm.kind for alarm in alarms if alarm.kind in self.config.alarms_stop]
        self._step = step
        self._seconds += clock.total
        if self._save_due(probe):
            self._save(probe)
        self._saved(clock)
        return step_metrics.report_of(done, self.config, self._speedups, alarms)

    def _write(self, done: step_metrics.Finished, clock: Clock) -> list[Alarm]:
        """Write the step's tables and its row of metrics; return the alarms."""
        gathered = done.gathered
        self._journal.write_tables(
            done.step, done.stage, gathered.problems, gathered.rollouts.groups, gathered.graded, self._kind
        )
        clock.finish("tables")
        numbers = step_metrics.numbers_of(
            done, self.config, self._curriculum.stage_index, clock.seconds, self._saving_s
        )
        alarms = self._journal.write_metrics(done.step, step_metrics.words_of(done, self._speedups), numbers)
        for alarm in alarms:
            log.warning("step %d: %s: %s; %s", done.step, alarm.kind, alarm.detail, alarm.advice)
        return alarms

    @property
    def _stage(self) -> str:
        return self.config.curriculum.stages[self._curriculum.stage_index].name

    def _save(self, probe: Probe | None) -> None:
        state = {
            "step": self._step,
            "name": self._name,
            "seconds": self._seconds,
            "num_judged": self._num_judged,
            "method": self.config.method,
            "stopped_by": self._stopped_by,
            "lr": self.config.lr,
            "num_threads": self._num_threads,
            "curriculum": self._curriculum.model_dump(mode="json"),
        }
        self._saved_at_s = self._seconds
        keep = self.config.keep_checkpoints
        shards = self._learner.save(self._store.child(checkpoint.folder_of(self._step)))
        self._saver.save(self._step, self.policy, self._learner.optimiser, state, keep, _score(probe), shards)
        if self.done:
            self._saver.wait()

    def _save_due(self, probe: Probe | None) -> bool:
        """Return True if enough steps or minutes are over since the last checkpoint, or this is the best."""
        if self.done:
            return True
        if self._step % self.config.checkpoint_every:
            return False
        minutes = self.config.checkpoint_minutes
        is_time = minutes is None or self._seconds - self._saved_at_s >= 60 * minutes
        return is_time or checkpoint.is_best(self._store, self._step, _score(probe))

    def _saved(self, clock: Clock) -> None:
        """Count what a checkpoint took: in the minutes, and in the next row, since it has its own step's."""
        clock.finish("checkpoint")
        self._saving_s = clock.seconds["checkpoint"]
        self._seconds += self._saving_s


def _score(probe: Probe | None) -> tuple[float, float] | None:
    return None if probe is None else (probe.correct_rate, probe.fast_1)
