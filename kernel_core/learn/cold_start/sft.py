"""Supervised training before RL, so that a policy begins with answers that can be judged at all.

Kill it anywhere and call it again: it goes on from its last checkpoint. In one process on a CPU it does so
bit for bit, unless a limit of minutes makes the schedule follow the clock. What it leaves in its store is a
policy's folder (sealed), `metrics.jsonl`, and `report.json` with the mixture that was learned.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import Any, cast

import torch

from kernel_core.config import ColdStartConfig, PolicyConfig, TrainConfig
from kernel_core.errors import ConfigError
from kernel_core.learn import checkpoint
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.cold_start.dataset import Conversation, build_conversations
from kernel_core.learn.cold_start.rows import digest_of_rows, encode, held_back, subject
from kernel_core.learn.cold_start.updater import Updater, open_updater
from kernel_core.learn.phase_timer import repeatable
from kernel_core.learn.run_log import METRICS, forget_lines
from kernel_core.learn.saver import Saver
from kernel_core.learn.update import keep_master_weights
from kernel_core.policy import open_policy
from kernel_core.policy.tiny_model import new_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.policy.trainable import Trainable
from kernel_core.progress import Progress, silent
from kernel_core.records import Record
from kernel_core.runs.resolve import CHECKPOINTS
from kernel_core.store import Store, digest_of

__all__ = ["ColdStartReport", "build_conversations", "cold_start", "encode", "starting_policy"]

log = logging.getLogger(__name__)

FINAL_LR_SHARE = 0.1
"""Final learning rate of the cosine schedule, as a share of the peak."""
TOKENIZER_TEXTS = 4000
"""Conversations that a new tokenizer is trained on: more change nothing at a few thousand entries."""
REPORTS, SAVES = 40, 8
"""Metrics reports and checkpoints over a whole cold start, unless intervals in minutes are given."""
REPORTED = 24
"""Held-back conversations that measure the loss of a report on the way."""


class ColdStartReport(Record):
    """Result of a cold start."""

    steps: int
    num_conversations: int
    num_too_long: int
    """Left out: prompt and answer together exceed the context."""
    mixture: dict[str, int]
    """Conversations by kind and grade of the answer."""
    num_tokens: int
    """Read in training, padding included."""
    num_padding: int
    """Padding among them."""
    num_held_back: int
    """Conversations that measure the loss; about their problems nothing was trained on. 0 where there are too
    few problems for it, and then the loss is of conversations that were trained on."""
    loss: float
    """Nats a token, after training."""
    seconds: float


def starting_policy(config: PolicyConfig, conversations: Sequence[Conversation], seed: int) -> Trainable:
    """Open the policy that a cold start begins with: the config's own, or a new one.

    One from nothing gets a tokenizer made for these conversations; the same arguments give the same one.
    """
    if config.kind not in ("torch", "tinker"):
        raise ConfigError(f"policy.kind = {config.kind} cannot be trained; set policy.kind=torch or tinker")
    if config.model == "new":
        texts = ["".join(m["content"] for m in c.messages) + c.answer for c in conversations]
        return new_policy(config, texts[:TOKENIZER_TEXTS], seed)
    # Both kinds of policy are trainable; the protocol of all policies does not say so.
    return cast(Trainable, open_policy(config))


def cold_start(
    policy: Trainable,
    conversations: Sequence[Conversation],
    config: ColdStartConfig,
    store: Store,
    progress: Progress = silent,
    minibatch_tokens: int | None = None,
    training: TrainConfig | None = None,
) -> ColdStartReport:
    """Train `policy` in place on the answers of `conversations`, and leave it sealed in `store`.

    An update reads `config.batch_tokens` tokens, `minibatch_tokens` of them in one forward pass (all by
    default). A store that is sealed already is taken as it is. With `config.shared` the learners of
    `training` share each update; `policy` is their copy then, on the CPU if `training.policy_to_teach` made
    it. Raises `ConfigError` when nothing fits the context, and `WorkersLost` when learners were lost: called
    again, it goes on from its last checkpoint.
    """
    if isinstance(policy, TorchPolicy):
        keep_master_weights(policy)
    if store.sealed():
        policy.take(store)
        return ColdStartReport.model_validate(store.read_json("report.json"))
    rows = encode(policy, conversations)
    fitting = [index for index, row in enumerate(rows) if len(row) <= policy.config.max_context]
    if not fitting:
        raise ConfigError(
            f"no conversation fits policy.max_context = {policy.config.max_context}; raise it, or lower "
            "rollout.prompt_budget"
        )
    subjects = [subject(conversations[index]) for index in fitting]
    with closing(
        open_updater(policy, config, minibatch_tokens or config.batch_tokens, store, training)
    ) as updater:
        taught = _Training(policy, updater, [rows[index] for index in fitting], subjects, config, store)
        taught.run(progress)
        loss = taught.loss()
        updater.fill()
    report = ColdStartReport(
        steps=taught.step,
        num_conversations=len(fitting),
        num_too_long=len(rows) - len(fitting),
        mixture=dict(sorted(Counter(f"{c.kind} {c.grade}".strip() for c in conversations).items())),
        num_tokens=taught.num_tokens,
        num_padding=taught.num_padding,
        num_held_back=taught.num_held_back,
        loss=loss,
        seconds=round(taught.seconds, 1),
    )
    store.write_json("report.json", report.model_dump())
    policy.set_version(f"cold-start-{taught.digest[:8]}")
    policy.save(store)
    store.remove(checkpoint.FOLDER)
    store.remove(CHECKPOINTS)
    return report


class _Training:
    """Training loop and its state."""

    def __init__(
        self,
        policy: Trainable,
        updater: Updater,
        rows: Sequence[TokenRow],
        subjects: Sequence[str],
        config: ColdStartConfig,
        store: Store,
    ) -> None:
        self._policy, self._updater, self._config, self._store = policy, updater, config, store
        not_trained_on, measuring = held_back(subjects)
        self._rows = [row for index, row in enumerate(rows) if index not in not_trained_on]
        self._measured = [rows[index] for index in measuring] or list(rows[:8])
        self.num_held_back = len(measuring)
        self._saver = Saver(store, background=policy.device.type == "cuda")
        self._saved_at = time.monotonic()
        self._lr = 0.0
        self._num_threads = torch.get_num_threads()
        settings = config.model_dump(exclude={"minutes", "data", "checkpoint_minutes", "shared"})
        self.digest = digest_of([settings, policy.version, digest_of_rows(rows)])
        self.step, self.num_tokens, self.num_padding, self.seconds = 0, 0, 0, 0.0
        folder = checkpoint.newest(store)
        if folder is not None:
            state = checkpoint.restore(store.child(folder), policy, self._updater.optimiser)
            self.step, self.num_tokens = state["step"], state["num_tokens"]
            self.num_padding = state["num_padding"]
            self.seconds, self._num_threads = state["seconds"], state["num_threads"]
            log.info("cold start: going on after step %d", self.step)
            self._updater.on_restore(store.child(folder))
        forget_lines(store, METRICS, self.step)  # of steps that a kill took away

    @property
    def done(self) -> bool:
        minutes = self._config.minutes
        return self.step >= self._config.steps or (minutes is not None and self.seconds >= 60 * minutes)

    def run(self, progress: Progress) -> None:
        """Train to the last step or minute."""
        last = time.monotonic()
        report_every = max(1, self._config.steps // REPORTS)
        lengths = [len(row) for row in self._rows]
        batches = self._updater.batches(lengths, self._config.batch_tokens, self._config.seed)
        with repeatable(self._num_threads, self._policy.device), self._updater.training():
            for members in islice(batches, self.step, None):
                if self.done:
                    break
                loss, norm = self._train_on([self._rows[i] for i in members])
                self.step += 1
                now = time.monotonic()
                self.seconds, last = self.seconds + now - last, now
                progress("cold start", done=self.step, total=self._config.steps)
                if self.step % report_every == 0 or self.done:
                    self._report(float(loss), None if norm is None else float(norm))
                if self._save_due() and not self.done:
                    self._save()
        self._saver.close()

    def loss(self, most: int | None = None) -> float:
        """Nats a token on (at most so many) conversations that are not trained on, without dropout."""
        with repeatable(self._num_threads, self._policy.device):
            return self._updater.loss(self._measured[:most])

    def _train_on(self, rows: Sequence[TokenRow]) -> tuple[torch.Tensor | float, torch.Tensor | float | None]:
        """Loss in nats a token, and the gradient's norm; on a GPU neither is waited for."""
        self._lr = self._config.lr * self._schedule()
        updated = self._updater.update(rows, self._lr)
        self.num_tokens += updated.num_read
        self.num_padding += updated.num_read - sum(map(len, rows))
        return updated.loss, updated.grad_norm

    def _schedule(self) -> float:
        """Share of the peak rate: linear warm-up, then a cosine over the steps, or the minutes if sooner."""
        config = self._config
        if self.step < config.warmup:
            return (self.step + 1) / config.warmup
        done = (self.step - config.warmup) / max(1, config.steps - config.warmup)
        if config.minutes is not None:
            done = max(done, self.seconds / (60 * config.minutes))
        cosine = 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
        return FINAL_LR_SHARE + (1 - FINAL_LR_SHARE) * cosine

    def _report(self, loss: float, grad_norm: float | None) -> None:
        self._store.append_line(
            METRICS,
            {
                "step": self.step,
                "loss": loss,
                "held_back_loss": self.loss(REPORTED),
                "lr": self._lr,
                **({} if grad_norm is None else {"grad_norm": grad_norm}),
                "num_tokens": self.num_tokens,
                "seconds": round(self.seconds, 2),
            },
        )

    def _save(self) -> None:
        state: dict[str, Any] = {
            "step": self.step,
            "num_tokens": self.num_tokens,
            "num_padding": self.num_padding,
            "seconds": self.seconds,
            "num_threads": self._num_threads,
        }
        self._saved_at = time.monotonic()
        self._updater.fill()
        shards = self._updater.save(self._store.child(checkpoint.folder_of(self.step)))
        self._saver.save(self.step, self._policy, self._updater.optimiser, state, keep=1, shards=shards)

    def _save_due(self) -> bool:
        minutes = self._config.checkpoint_minutes
        if minutes is not None:
            return time.monotonic() - self._saved_at >= 60 * minutes
        return self.step % max(1, self._config.steps // SAVES) == 0
