"""What learning and evaluating stand on: a snapshot, its index, and a policy to begin with."""

from __future__ import annotations

from flows.index import index
from flows.ingest import ingest
from flows.route import Mode, route
from kernel_core.config import IndexConfig, IngestConfig, TrainConfig
from kernel_core.policy import SHIPPED
from kernel_core.runs.resolve import COLD_START, check_cold_start, is_shipped, needs_cold_start
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store

INGEST, INDEX = IngestConfig(), IndexConfig()
"""A run that has no corpus yet gets one made with the default settings."""


def lay_corpus(here: Run, ingest_config: IngestConfig, index_config: IndexConfig, mode: Mode) -> None:
    """Make the run's snapshot and its index, unless they are there."""
    where = {"run": here.name, "root": here.root}
    route(ingest, mode, config=ingest_config, **where)
    route(index, mode, {"snapshot": here.store.child("snapshot")}, config=index_config, **where)


def foundations(here: Run, config: TrainConfig) -> dict[str, Store]:
    """What the run has of snapshot, index and the weights that learning begins with.

    Raises `ConfigError` where the run has a cold start that this training would leave out.
    """
    check_cold_start(here, config)
    has_cold_start = needs_cold_start(config) or here.store.child(COLD_START).sealed()
    names = ("snapshot", "index", *((COLD_START,) if has_cold_start else ()))
    found = {name: here.store.child(name) for name in names}
    return found | ({"shipped": Store(str(SHIPPED))} if is_shipped(config.policy) else {})
