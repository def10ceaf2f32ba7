"""The corpus that learning and evaluating need: a snapshot and its index."""

from __future__ import annotations

from flows.index import index
from flows.ingest import ingest
from flows.route import Mode, route
from kernel_core.config import IndexConfig, IngestConfig
from kernel_core.runs.run_folder import Run

INGEST, INDEX = IngestConfig(), IndexConfig()
"""A run that has no corpus yet gets one made with the default settings."""


def lay_corpus(here: Run, ingest_config: IngestConfig, index_config: IndexConfig, mode: Mode) -> None:
    """Make the run's snapshot and its index, unless they are there."""
    where = {"run": here.name, "root": here.root}
    route(ingest, mode, config=ingest_config, **where)
    route(index, mode, {"snapshot": here.store.child("snapshot")}, config=index_config, **where)
