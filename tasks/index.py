"""Indexing as a task."""

from __future__ import annotations

from kernel_core.config import IndexConfig
from kernel_core.runs.run_folder import Run
from kernel_core.store import Manifest, Store
from tasks.faults import retried_task
from tasks.gpu import gpu_slot
from tasks.progress import StageProgress


@retried_task("build index", "index")
def build_index(config: IndexConfig, run: Run, store: Store) -> Manifest:
    """A snapshot into a sealed index."""
    from kernel_core.retrieval.index import build_index

    with gpu_slot(config.device), StageProgress(run.name, "index") as progress:
        return build_index(config, run.store.child("snapshot"), store, progress)
