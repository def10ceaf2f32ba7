"""Evaluation and best of N as tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TypeVar

from kernel_core.config import BestOfNConfig, EvaluateConfig
from kernel_core.runs.host_gpus import on_this_host
from kernel_core.runs.judges import JUDGED, judging
from kernel_core.runs.resolve import choose_weights, suited_to
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.batches import each_batch
from tasks.faults import retried_task
from tasks.gpu import gpu_slot
from tasks.progress import StageProgress
from tasks.tools import Tools, opened

Settings = TypeVar("Settings", EvaluateConfig, BestOfNConfig)


@retried_task("score policy", "evaluate")
def score_policy(
    config: EvaluateConfig,
    run: Run,
    store: Store,
    beside: Mapping[str, EvaluateConfig] = MappingProxyType({}),
) -> None:
    """Evaluate a policy on held-out problems, or judge kept answers again; seal the scorecard.

    `beside` are further groups by folder, whose answers are written and judged in the same batches. Their
    scorecards are made by calls of their own.
    """
    from kernel_core.evaluation.scorecard import answer_groups, evaluate, evaluate_answers

    if config.answers is None:
        with _tools_for("evaluate", config, run, *beside.values()) as ((config, *others), tools, progress):
            if beside:
                stores = [store, *(run.store.child(name) for name in beside)]
                together = list(zip((config, *others), stores, strict=True))
                answer_groups(together, tools.policy, tools.gym, tools.retriever, progress, tools.memory)
            evaluate(
                config, tools.policy, tools.gym, tools.retriever, store, progress, tools.memory, each_batch
            )
        return
    config, memory = on_this_host(config), Store(run.root).child(JUDGED)
    with (
        gpu_slot(config.gym.device, places=config.placement),
        judging(config.gym, run, config.placement.judge) as gym,
        StageProgress(run.name, "evaluate") as progress,
    ):
        evaluate_answers(config, gym, store, progress, memory, each_batch)


@retried_task("select winners", "best-of-n")
def select_winners(config: BestOfNConfig, run: Run, store: Store) -> None:
    """Seal the best verified kernel of each problem."""
    from kernel_core.evaluation.best_of_n import best_of_n

    with _tools_for("best-of-n", config, run) as ((config,), tools, progress):
        best_of_n(config, tools.policy, tools.gym, tools.retriever, store, progress, tools.memory, each_batch)


@contextmanager
def _tools_for(
    stage: str, config: Settings, run: Run, *others: Settings
) -> Iterator[tuple[list[Settings], Tools, StageProgress]]:
    """Open the policy, judge and retriever that settings name; the settings come as they suit the weights."""
    weights = choose_weights(run, config.policy, config.checkpoint)
    suited = [on_this_host(suited_to(each, weights)) for each in (config, *others)]
    with (
        opened(suited[0], run, weights=weights, corpus=config.checkpoint) as tools,
        StageProgress(run.name, stage) as progress,
    ):
        yield suited, tools, progress
