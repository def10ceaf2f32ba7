"""What training and evaluation stand on: a snapshot, its index, and a policy to begin with."""

from __future__ import annotations

from flows.cold_start import cold_start
from flows.index import index
from flows.ingest import ingest
from flows.route import Mode, route
from kernel_core.config import IndexConfig, IngestConfig, TrainConfig
from kernel_core.run_policy import needs_cold_start
from kernel_core.runs import Run
from kernel_core.stage_work import sealed_digest


def lay_foundations(
    here: Run, config: TrainConfig, ingest_config: IngestConfig, index_config: IndexConfig, mode: Mode
) -> dict[str, str]:
    """Make the run's snapshot, index and cold start where they are needed; gives their digests."""
    where = {"run": here.name, "root": here.root}
    route(ingest, mode, config=ingest_config, **where)
    route(index, mode, foundations(here, config), config=index_config, **where)
    if needs_cold_start(config.policy):
        route(cold_start, mode, foundations(here, config), config=config, **where)
    return foundations(here, config)


def foundations(here: Run, config: TrainConfig) -> dict[str, str]:
    """Digests of what the run has of snapshot, index and, where the policy needs it, cold start."""
    names = ("snapshot", "index", *(("cold_start",) if needs_cold_start(config.policy) else ()))
    return {name: sealed_digest(here.store.child(name)) for name in names}
