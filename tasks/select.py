"""Best-of-N as a task."""

from __future__ import annotations

from kernel_core.config import BestOfNConfig
from kernel_core.runs.host_gpus import on_this_host
from kernel_core.runs.resolve import choose_weights, suited_to
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.batches import each_batch
from tasks.faults import retried_task
from tasks.progress import StageProgress
from tasks.tools import opened


@retried_task("select winners", "best-of-n")
def select_winners(config: BestOfNConfig, run: Run, store: Store) -> None:
    """The best verified kernel of each problem into a sealed folder."""
    from kernel_core.evaluation.best_of_n import best_of_n

    weights = choose_weights(run, config.policy, config.checkpoint)
    config = on_this_host(suited_to(config, weights))
    where = {"weights": weights, "corpus": config.checkpoint}
    with (
        opened(config, run, **where) as tools,
        StageProgress(run.name, "best-of-n") as progress,
    ):
        best_of_n(config, tools.policy, tools.gym, tools.retriever, store, progress, tools.memory, each_batch)
