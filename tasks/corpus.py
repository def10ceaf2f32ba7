"""Ingesting as a task."""

from __future__ import annotations

from prefect import task

from kernel_core.config import IngestConfig
from kernel_core.store import Manifest, Store
from tasks.faults import RETRIES
from tasks.progress import StageProgress


@task(name="build snapshot", tags=["ingest"], **RETRIES)
def build_snapshot(config: IngestConfig, store: Store) -> Manifest:
    """Sources into a sealed snapshot."""
    from kernel_core.corpus.snapshot import build_snapshot

    with StageProgress("ingest") as progress:
        return build_snapshot(config, store, progress)
