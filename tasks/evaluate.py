"""Evaluating as a task."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernel_core.config import EvaluateConfig
from kernel_core.runs.host_gpus import on_this_host
from kernel_core.runs.judges import JUDGED, judging
from kernel_core.runs.resolve import choose_weights, suited_to
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.batches import each_batch
from tasks.faults import retried_task
from tasks.gpu import gpu_slot
from tasks.progress import StageProgress
from tasks.tools import opened


@retried_task("score policy", "evaluate")
def score_policy(
    config: EvaluateConfig,
    run: Run,
    store: Store,
    beside: Mapping[str, EvaluateConfig] = MappingProxyType({}),
) -> None:
    """A policy on held-out problems into a sealed scorecard, or kept answers judged again.

    `beside` are further groups by folder, whose answers are written and judged in the same batches. Their
    scorecards are made by calls of their own.
    """
    from kernel_core.evaluation.scorecard import answer_groups, evaluate, evaluate_answers

    if config.answers is not None:
        config, memory = on_this_host(config), Store(run.root).child(JUDGED)
        with (
            gpu_slot(config.gym.device, places=config.placement),
            judging(config.gym, run, config.placement.judge) as gym,
            StageProgress(run.name, "evaluate") as progress,
        ):
            evaluate_answers(config, gym, store, progress, memory, each_batch)
        return
    weights = choose_weights(run, config.policy, config.checkpoint)
    config = on_this_host(suited_to(config, weights))
    where = {"weights": weights, "corpus": config.checkpoint}
    with (
        opened(config, run, **where) as tools,
        StageProgress(run.name, "evaluate") as progress,
    ):
        if beside:
            groups = [
                (on_this_host(suited_to(group, weights)), run.store.child(name))
                for name, group in beside.items()
            ]
            together = [(config, store), *groups]
            answer_groups(together, tools.policy, tools.gym, tools.retriever, progress, tools.memory)
        evaluate(config, tools.policy, tools.gym, tools.retriever, store, progress, tools.memory, each_batch)
