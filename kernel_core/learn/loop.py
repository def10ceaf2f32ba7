"""The RL loop: practise, judge, reward, update, measure, checkpoint. Kill it anywhere; it goes on.

A step works from the newest checkpoint's state alone, and everything that it writes comes before its own
checkpoint is sealed. So a killed run repeats at most the steps since then, and on a CPU repeats them bit
for bit: all draws are seeded by what they belong to, and the number of threads is part of the checkpoint.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch

from kernel_core.config import TrainConfig
from kernel_core.dialogue.rollout import Rollouts, roll_out, seed_of
from kernel_core.errors import ConfigError
from kernel_core.evaluation.metrics import SpeedKind, in_words
from kernel_core.gym.contract.requests import Gym
from kernel_core.learn import checkpoint
from kernel_core.learn.alarms import Alarm, AlarmKind
from kernel_core.learn.batch import Row
from kernel_core.learn.credit import rows_of, varies
from kernel_core.learn.distributed.learner_group import Team
from kernel_core.learn.metrics import Metrics, measure, probe_of
from kernel_core.learn.phase_timer import Clock, repeatable
from kernel_core.learn.problem_sampler import Practice
from kernel_core.learn.run_log import Journal
from kernel_core.learn.saver import Saver
from kernel_core.learn.step_batch import Experience, gather
from kernel_core.learn.step_report import StepReport
from kernel_core.learn.update import keep_master_weights, new_optimiser, update
from kernel_core.learn.update_report import UpdateReport
from kernel_core.policy.publish import Publisher
from kernel_core.policy.sampler import Sampler, open_sampler
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.progress import Progress, silent
from kernel_core.records import Problem
from kernel_core.retrieval.protocol import Retriever
from kernel_core.reward.curriculum import (
    CurriculumState,
    Probe,
    StageEvent,
    advance,
    check_stages,
    observe,
    observe_groups,
)
from kernel_core.store import Store, digest_of

log = logging.getLogger(__name__)

REFERENCE = "reference"
"""Folder of the policy that a KL term holds on to: the one that RL began with."""


class Trainer:
    """RL on one policy. `while not trainer.done: trainer.step()`."""

    def __init__(
        self,
        config: TrainConfig,
        store: Store,
        policy: TorchPolicy,
        gym: Gym,
        retriever: Retriever | None = None,
        progress: Progress = silent,
        sampler: Sampler | None = None,
    ) -> None:
        """`policy` holds the weights that RL begins with; a checkpoint in `store` replaces them. Without a
        `sampler` the one that the config names writes the rollouts."""
        check_stages(config.curriculum)
        if config.rollout.sampling.temperature == 0:
            raise ConfigError("rollout.sampling.temperature = 0: greedy answers are all alike; use 1.0")
        if config.returns == "max" and config.credit == "progress":
            raise ConfigError("returns = max picks the best kernel, not the best change; set credit=absolute")
        policy.check(config.rollout)
        self.config = config
        self.policy = policy
        self._store, self._gym, self._retriever, self._progress = store, gym, retriever, progress
        self._kind: SpeedKind = "measured" if config.gym.device == "cuda" else "predicted"
        self._speedups = in_words(self._kind, config.gym.predict_gpu)
        self._practice = Practice.open(config)
        self._journal = Journal(store)
        self._name = digest_of([config.model_dump(mode="json"), policy.version])[:8]
        keep_master_weights(policy)
        self._optimiser = new_optimiser(policy.model, config.lr)
        self._team = Team(config, policy, self._optimiser) if config.learners > 1 else None
        self._sampler = sampler or open_sampler(config, policy, store)
        self._publisher = Publisher(self._sampler, policy, config.sampler.max_gap)
        self._reference: Any = None
        self._saver = Saver(store, background=policy.device.type == "cuda")
        self._saved_at_s = 0.0
        self._step = -1
        self._curriculum = CurriculumState()
        self._seconds = 0.0
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
        """Where the run is in its stages."""
        return self._curriculum

    @property
    def done(self) -> bool:
        """Whether the last step or the last minute is over, or an alarm ended the run."""
        out_of_time = self.config.minutes is not None and self._seconds >= 60 * self.config.minutes
        stopped = any(kind in self.config.alarms_stop for kind in self._stopped_by)
        return stopped or self._step >= self.config.steps or (self._step >= 1 and out_of_time)

    def step(self) -> StepReport:
        """One step. After an error in it (the gym's, a full disk) call it again: it begins anew from the
        newest checkpoint, as a new process would."""
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
        """End what the trainer started: a checkpoint in work, connections to a sampler, other learners."""
        self._saver.close()
        self._sampler.close()
        if self._team is not None:
            self._team.close()

    def _go_on(self) -> None:
        """Take up the newest checkpoint, and forget whatever was written after it."""
        self._saver.wait()
        folder = checkpoint.newest(self._store)
        if folder is None:
            self._step, self._curriculum, self._stopped_by = -1, CurriculumState(), []
        else:
            state = checkpoint.restore(self._store.child(folder), self.policy, self._optimiser)
            self._step = state["step"]
            self._name = state["name"]
            self._seconds = self._saved_at_s = state["seconds"]
            # An alarm's advice may be another rate: who follows it wants the run to go on.
            as_before = state.get("lr") == self.config.lr
            self._stopped_by = state.get("stopped_by", []) if as_before else []
            for group in self._optimiser.param_groups:
                group["lr"] = self.config.lr
            self._num_threads = state["num_threads"]
            state["curriculum"].pop("pass_rates", None)  # of checkpoints that an earlier version wrote
            self._curriculum = CurriculumState.model_validate(state["curriculum"])
            checkpoint.list_checkpoint(self._store, self._step, self.policy.version)
            log.info("going on after step %d, stage %s", self._step, self._stage)
            if self._team is not None:
                self._team.take()
        self._published = False
        self._journal.go_back(self._step)
        if self.config.kl_coefficient and folder is not None:
            self._hold_reference()

    def _begin(self) -> None:
        """Before the first step: keep the reference, and measure the policy as it came."""
        if self.config.kl_coefficient:
            self.policy.save(self._store.child(REFERENCE))
            self._hold_reference()
        clock = Clock(self._progress)
        probe = self._probe(0, clock)
        self._curriculum = observe(self._curriculum, probe, self.config.curriculum)
        words = {"stage": self._stage, "speedups": self._speedups}
        self._journal.write_metrics(0, words, _probe_metrics(probe))
        self._step = 0
        self._seconds += clock.total
        self._save(probe)
        self._saved(clock)

    def _one_step(self) -> StepReport:
        step, stage = self._step + 1, self.config.curriculum.stages[self._curriculum.stage_index]
        clock = Clock(self._progress)
        gathered = gather(
            self.config,
            stage.weights,
            lambda draw, taken: self._practice.choose(self._curriculum, step, draw, taken),
            lambda problems, draw: self._roll_out(problems, step, draw, clock),
        )
        rows = rows_of(
            gathered.learned(self.config.problems_per_step),
            gathered.rollouts,
            self.config.profile_rejection,
            seed=seed_of(self.config.seed, "profile rejection", step),
        )
        report = self._update(rows, clock)
        if report.num_optimiser_steps:
            self.policy.set_version(f"{self._name}@{step}")
        clock.finish("update")
        publication = self._publisher.publish()
        clock.finish("publish")

        self._curriculum = observe_groups(self._curriculum, _varied(gathered))
        probe = self._probe(step, clock) if step % self.config.curriculum.probe_every == 0 else None
        self._curriculum, event = advance(self._curriculum, probe, step, self.config.curriculum)
        if event is not None:
            log.info("step %d: %s from %s to %s (%s)", *event.model_dump(exclude_none=True).values())

        metrics = measure(gathered.graded, self._kind) | _faults(gathered)
        metrics |= {"publish/gap": publication.gap, "publish/moved": publication.moved}
        num_sampled = gathered.rollouts.num_sampled_tokens
        self._journal.write_tables(
            step, stage.name, gathered.problems, gathered.rollouts.groups, gathered.graded, self._kind
        )
        clock.finish("tables")
        alarms = self._write_metrics(step, stage.name, metrics, report, probe, event, num_sampled, clock)
        for alarm in alarms:
            log.warning("step %d: %s: %s; %s", step, alarm.kind, alarm.detail, alarm.advice)
        self._stopped_by = [alarm.kind for alarm in alarms if alarm.kind in self.config.alarms_stop]
        self._step = step
        self._seconds += clock.total
        saved = self._save(probe) if self._save_due(probe) else None
        self._saved(clock)
        return StepReport(
            step=step,
            steps=self.config.steps,
            stage=stage.name,
            event=event,
            alarms=tuple(alarms),
            reward_mean=metrics["reward/mean"],
            verdicts={
                key.removeprefix("verdict/"): value
                for key, value in metrics.items()
                if key.startswith("verdict/") and value
            },
            correct_rate=metrics["kernel/correct_rate"],
            fast_1_rate=metrics["kernel/fast_1_rate"],
            speedups=self._speedups,
            update=report,
            probe=probe,
            checkpoint=saved,
            num_sampled_tokens=num_sampled,
            seconds=clock.seconds,
        )

    @property
    def _stage(self) -> str:
        return self.config.curriculum.stages[self._curriculum.stage_index].name

    def _roll_out(self, problems: list[Problem], step: int, draw: int, clock: Clock) -> Rollouts:
        rollouts = roll_out(
            self._sampler,
            self._gym,
            problems,
            self._retriever,
            self.config.rollout,
            group_size=self.config.group_size,
            seed=seed_of(self.config.seed, "rollout", step, *[draw] * (draw > 0)),
            leave_out_faults=True,
            progress=clock.phase(),
        )
        clock.finish("rollout")
        return rollouts

    def _probe(self, step: int, clock: Clock) -> Probe:
        """One answer to each validation problem. The judge's inputs are the same at every probe. Problems
        that the gym cannot work on are left out and counted; `GymUnavailable` when that is all of them."""
        rollouts = roll_out(
            self._sampler,
            self._gym,
            self._practice.probe_problems(),
            self._retriever,
            self.config.rollout.model_copy(update={"turns": 1}),
            group_size=1,
            seed=seed_of(self.config.seed, "probe", step),
            judge_seed=seed_of("probe"),
            leave_out_faults=True,
            progress=clock.phase("probe"),
        )
        clock.finish("probe")
        return probe_of(rollouts.groups, step, self._kind, rollouts.num_left_out)

    def _update(self, rows: list[Row], clock: Clock) -> UpdateReport:
        if self._team is not None:
            return self._team.update(rows)
        return update(self.policy, self._optimiser, rows, self.config, self._reference, clock.phase())

    def _write_metrics(
        self,
        step: int,
        stage: str,
        metrics: Metrics,
        report: UpdateReport,
        probe: Probe | None,
        event: StageEvent | None,
        num_sampled: int,
        clock: Clock,
    ) -> list[Alarm]:
        words = {"stage": stage, "speedups": self._speedups}
        if event is not None:
            words["event"] = f"{event.kind} to {event.to_stage}: {event.reason}"
        numbers = {
            "progress/done_frac": step / self.config.steps,
            "optim/lr": self.config.lr,
            "curriculum/stage_index": self._curriculum.stage_index,
            **metrics,
            "batch/num_sampled_tokens": num_sampled,
            **{f"update/{name}": value for name, value in report.model_dump(exclude_none=True).items()},
            **_tokens_per_s(num_sampled, report.num_tokens, clock.seconds),
            **(_probe_metrics(probe) if probe is not None else {}),
            **{f"seconds/{name}": round(value, 3) for name, value in clock.seconds.items()},
            "seconds/checkpoint": round(self._saving_s, 3),
        }
        return self._journal.write_metrics(step, words, numbers)

    def _save(self, probe: Probe | None) -> str:
        if self._team is not None:
            self._team.give_moments()
        state = {
            "step": self._step,
            "name": self._name,
            "seconds": self._seconds,
            "stopped_by": self._stopped_by,
            "lr": self.config.lr,
            "num_threads": self._num_threads,
            "curriculum": self._curriculum.model_dump(mode="json"),
        }
        self._saved_at_s = self._seconds
        keep = self.config.keep_checkpoints
        saved = self._saver.save(self._step, self.policy, self._optimiser, state, keep, _score(probe))
        if self.done:
            self._saver.wait()
        return saved

    def _save_due(self, probe: Probe | None) -> bool:
        """Whether steps and minutes since the last checkpoint are enough, or the step is one to be kept."""
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

    def _hold_reference(self) -> None:
        saved = TorchPolicy.load(self._store.child(REFERENCE), self.policy.config)
        if self._team is not None:
            self._team.hold(saved)
        else:
            self._reference = saved.model.requires_grad_(False).eval()


def _score(probe: Probe | None) -> tuple[float, float] | None:
    return None if probe is None else (probe.correct_rate, probe.fast_1)


def _varied(gathered: Experience) -> dict[str, list[bool]]:
    """Whether each group had something to teach, by problem family; one conversation alone tells nothing."""
    varied: dict[str, list[bool]] = defaultdict(list)
    for problem, group, graded in zip(
        gathered.problems, gathered.rollouts.groups, gathered.graded, strict=True
    ):
        if len(group.trajectories) > 1:
            varied[problem.family].append(varies(graded))
    return dict(varied)


def _tokens_per_s(num_sampled: int, num_trained: int, seconds: Mapping[str, float]) -> Metrics:
    """Tokens written in a second of sampling, and learned from in one of the update, if there were any."""
    counts = {
        "batch/sampled_tokens_per_s": (num_sampled, seconds.get("sample", 0.0)),
        "update/tokens_per_s": (num_trained, seconds.get("update", 0.0)),
    }
    return {name: round(count / took, 1) for name, (count, took) in counts.items() if count and took}


def _faults(gathered: Experience) -> Metrics:
    """What was drawn again, and what a fault of ours cost: never a reward, always a number."""
    return {
        "batch/num_resampled_groups": gathered.num_resampled,
        "faults/num_left_out": gathered.rollouts.num_left_out,
        "faults/num_retried": gathered.rollouts.num_retried,
        "seconds/judging": round(gathered.rollouts.seconds_judging, 3),
    }


def _probe_metrics(probe: Probe) -> Metrics:
    return {f"probe/{name}": value for name, value in probe.model_dump(exclude={"step"}).items()}
