"""Evaluation and best of N as tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from kernel_core.config import BestOfNConfig, EvaluateConfig, TrainConfig
from kernel_core.runs.host_gpus import on_this_host
from kernel_core.runs.judges import JUDGED, judge_in_background, judging
from kernel_core.runs.resolve import choose_weights, suited_to
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.batches import each_batch
from tasks.faults import retried_task
from tasks.gpu import gpu_slot
from tasks.progress import StageProgress
from tasks.tools import Tools, opened

Settings = TypeVar("Settings", EvaluateConfig, BestOfNConfig)


def begin_judging(run: Run, evaluation: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Write the answers of an evaluation, and let judges on CPUs work on them beside another stage.

    Both stages come as their parameters. Return False where nothing was begun: the scorecards are there, or
    the judges would be those of the other stage, or on a GPU, whose clock they would disturb.
    """
    config: EvaluateConfig = evaluation["config"]
    if config.answers is not None or config.gym.device == "cuda" or config.gym == other["config"].gym:
        return False
    groups = config.by_folder(evaluation["name"])
    left = {folder: asked for folder, asked in groups.items() if not run.store.child(folder).sealed()}
    if left:
        write_answers(left, run)
    return bool(left)


@retried_task("write answers", "evaluate")
def write_answers(groups: Mapping[str, EvaluateConfig], run: Run) -> None:
    """Write a policy's first answers, and begin to judge them; `score_policy` goes on from there.

    At the end the policy is closed and its slot of the GPU is free: sampling would disturb the clock of
    another stage's judges. Judges work on in the background.
    """
    from kernel_core.evaluation.scorecard import write_first_answers

    stores = [run.store.child(folder) for folder in groups]
    with _tools_for("evaluate", run, *groups.values()) as (asked, tools, progress):
        together = list(zip(asked, stores, strict=True))
        for requests in write_first_answers(together, tools.policy, tools.retriever, progress, tools.memory):
            judge_in_background(tools.gym, requests)


@retried_task("score policy", "evaluate")
def score_policy(groups: Mapping[str, EvaluateConfig], run: Run) -> None:
    """Evaluate a policy on groups of held-out problems, or judge kept answers again; seal the scorecards.

    `groups` has the evaluation of each group by its folder under the run; they differ in their problems
    alone. The policy and the judge are opened once. Answers of several groups are written and judged in
    common batches.
    """
    from kernel_core.evaluation.scorecard import answer_groups, evaluate, evaluate_answers

    first, stores = next(iter(groups.values())), [run.store.child(folder) for folder in groups]
    if first.answers is None:
        with _tools_for("evaluate", run, *groups.values()) as (asked, tools, progress):
            together = list(zip(asked, stores, strict=True))
            if len(together) > 1:
                answer_groups(together, tools.policy, tools.gym, tools.retriever, progress, tools.memory)
            for config, store in together:
                evaluate(
                    config,
                    tools.policy,
                    tools.gym,
                    tools.retriever,
                    store,
                    progress,
                    tools.memory,
                    each_batch,
                )
        return
    first, memory = on_this_host(first), Store(run.root).child(JUDGED)
    with (
        gpu_slot(first.gym.device, places=first.placement),
        judging(first.gym, run, first.placement.judge) as gym,
        StageProgress(run.name, "evaluate") as progress,
    ):
        for config, store in zip(map(on_this_host, groups.values()), stores, strict=True):
            evaluate_answers(config, gym, store, progress, memory, each_batch)


@retried_task("select winners", "best-of-n")
def select_winners(config: BestOfNConfig, run: Run, store: Store) -> None:
    """Seal the best verified kernel of each problem."""
    from kernel_core.evaluation.best_of_n import best_of_n

    with _tools_for("best-of-n", run, config) as ((config,), tools, progress):
        best_of_n(config, tools.policy, tools.gym, tools.retriever, store, progress, tools.memory, each_batch)


@retried_task("keep best kernels", "train")
def keep_best_kernels(config: TrainConfig, run: Run, store: Store) -> None:
    """Seal the best verified kernel that a training wrote for each problem, in place of an earlier choice."""
    from kernel_core.evaluation.best_of_training import best_of_training

    config, memory = on_this_host(config), Store(run.root).child(JUDGED)
    with (
        gpu_slot(config.gym.device, places=config.placement),
        judging(config.gym, run, config.placement.judge) as gym,
        StageProgress(run.name, "train") as progress,
    ):
        store.remove()
        best_of_training(config, gym, run.store, store, progress, memory)


@contextmanager
def _tools_for(
    stage: str, run: Run, *configs: Settings
) -> Iterator[tuple[list[Settings], Tools, StageProgress]]:
    """Open the policy, judge and retriever that settings name; the settings come as they suit the weights."""
    first = configs[0]
    weights = choose_weights(run, first.policy, first.checkpoint)
    suited = [on_this_host(suited_to(config, weights)) for config in configs]
    with (
        opened(suited[0], run, weights=weights, corpus=first.checkpoint) as tools,
        StageProgress(run.name, stage) as progress,
    ):
        yield suited, tools, progress
