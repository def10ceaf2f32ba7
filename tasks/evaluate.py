"""Evaluation and best of N as tasks."""

from __future__ import annotations

from collections.abc import Callable

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
from tasks.tools import opened


@retried_task("score policy", "evaluate")
def score_policy(config: EvaluateConfig, run: Run, store: Store) -> None:
    """Evaluate a policy on held-out problems, or judge kept answers again; seal the scorecard."""
    from kernel_core.evaluation.scorecard import evaluate, evaluate_answers

    if config.answers is None:
        _converse(evaluate, "evaluate", config, run, store)
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

    _converse(best_of_n, "best-of-n", config, run, store)


def _converse(
    work: Callable[..., object], stage: str, config: EvaluateConfig | BestOfNConfig, run: Run, store: Store
) -> None:
    """Call the work of a stage with the policy, judge and retriever that its settings name."""
    weights = choose_weights(run, config.policy, config.checkpoint)
    config = on_this_host(suited_to(config, weights))
    with (
        opened(config, run, weights=weights, corpus=config.checkpoint) as tools,
        StageProgress(run.name, stage) as progress,
    ):
        work(config, tools.policy, tools.gym, tools.retriever, store, progress, tools.memory, each_batch)
