"""Learning as tasks: the cold start, and RL."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING

from prefect import task
from prefect.states import Completed, State

from kernel_core.config import TrainConfig
from kernel_core.report.pages import curriculum_blocks, key_of, stage_rows
from kernel_core.runs.host_gpus import on_this_host, require_gpu
from kernel_core.runs.judges import close_gpu_judges, judging
from kernel_core.runs.resolve import locate_checkpoint, weights_to_train
from kernel_core.runs.run_folder import Run
from kernel_core.runs.stage_record import sealed_digest
from kernel_core.store import Store
from tasks.artifacts import LivePage, show
from tasks.events import STAGE_CHANGED, emit
from tasks.faults import retried_task
from tasks.gpu import gpu_slot
from tasks.progress import StageProgress, may_be_missed
from tasks.tools import opened

if TYPE_CHECKING:
    from kernel_core.learn.loop import Trainer

log = logging.getLogger(__name__)

CURRICULUM_EVERY_S = 60.0
"""Seconds between two drawings of the curves."""


@retried_task("teach", "cold-start")
def teach(config: TrainConfig, run: Run, store: Store) -> None:
    """Judged conversations from the run's snapshot, and a policy trained on them."""
    from kernel_core.corpus.snapshot import load_snapshot
    from kernel_core.learn.cold_start.chat_files import read_transcripts
    from kernel_core.learn.cold_start.sft import build_conversations, cold_start, starting_policy
    from kernel_core.retrieval.search import open_retriever

    require_gpu(config.policy, config.gym)
    config = on_this_host(config.as_taught)
    log.info(config.described())
    exemplars = load_snapshot(run.store.child("snapshot"))
    retriever = open_retriever(run.store.child("index"), config=config.rollout.retrieval)
    devices = (config.policy.device, config.gym.device)
    with (
        gpu_slot(*devices, places=config.placement),
        StageProgress(run.name, "cold-start") as progress,
    ):
        if config.cold_start.data:
            conversations = read_transcripts(config.cold_start.data)
        else:
            with judging(config.gym, run, config.placement.judge) as gym:
                conversations = build_conversations(
                    exemplars, gym, config.cold_start, config.rollout, retriever, progress=progress
                )
        close_gpu_judges()
        policy = starting_policy(config.policy_to_teach, conversations, config.cold_start.seed)
        report = cold_start(
            policy, conversations, config.cold_start, store, progress, config.minibatch_tokens, config
        )
    log.info("cold start: %d steps, held-back loss %.3f nats a token", report.steps, report.loss)


@retried_task("train policy", "train")
def train_policy(config: TrainConfig, run: Run) -> str:
    """RL to the last step, going on from the newest checkpoint; gives the last one's digest.

    Each stage of the curriculum is a task run of its own inside this one. A try after a fault opens the judge
    anew, so it is this task that is tried again.
    """
    from kernel_core.learn.loop import Trainer

    config = on_this_host(config)
    log.info(config.described())
    weights = weights_to_train(run, config)
    with (
        opened(config, run, weights=weights) as tools,
        StageProgress(run.name, "train", main="steps") as progress,
    ):
        trainer = Trainer(
            config, run.store, tools.policy, tools.gym, tools.retriever, progress, memory=tools.memory
        )
        live = LivePage(
            key_of(run, "learning-curves"), run.store, f"Curves of {run.name}, drawn while it trains."
        )
        with contextlib.closing(trainer):
            while not trainer.done:
                stage = config.curriculum.stages[trainer.curriculum.stage_index].name
                train_stage(stage, trainer.step_number + 1, trainer, run, progress, live)
    return sealed_digest(Store(locate_checkpoint(run.root, run.name)))


@task(name="curriculum stage", task_run_name="{stage}, from step {from_step}", tags=["train"])
def train_stage(
    stage: str, from_step: int, trainer: Trainer, run: Run, progress: StageProgress, live: LivePage
) -> State:
    """Steps until the curriculum moves or the training ends; the state says which, and why."""
    shown_at, report = time.monotonic(), None
    while not trainer.done and (report is None or report.event is None):
        report = trainer.step()
        progress("steps", report.step, report.steps)
        if time.monotonic() - shown_at > CURRICULUM_EVERY_S:
            shown_at = time.monotonic()
            with may_be_missed("curriculum"):
                live.show(curriculum_blocks(run))
        for line in report.lines():
            log.info(line)
    with may_be_missed("curriculum"):
        live.show(curriculum_blocks(run))
        show(stage_rows(run, stage, from_step))
    if report is None or report.event is None:
        return Completed(message=f"The training ended in this stage, after step {trainer.step_number}.")
    event = report.event
    emit(f"{STAGE_CHANGED}.{event.kind}", run, **event.model_dump())
    return Completed(
        message=f"{event.kind.capitalize()} to {event.to_stage} after step {event.step}: {event.reason}."
    )
