"""Indexing as a task."""

from __future__ import annotations

from prefect import task

from kernel_core.config import IndexConfig
from kernel_core.store import Manifest, Store
from tasks.faults import RETRIES
from tasks.gpu import gpu_slot
from tasks.progress import StageProgress


@task(name="build index", tags=["index"], **RETRIES)
def build_index(config: IndexConfig, snapshot: Store, store: Store) -> Manifest:
    """A snapshot into a sealed index."""
    from kernel_core.retrieval.index import build_index

    with gpu_slot(config.device), StageProgress("index") as progress:
        return build_index(config, snapshot, store, progress)
