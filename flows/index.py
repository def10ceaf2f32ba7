"""A snapshot → embeddings and a nearest-neighbour index."""

from __future__ import annotations

from flows.running import running
from flows.stage_flow import stage_flow
from kernel_core.config import IndexConfig
from tasks.assets import making
from tasks.corpus import build_index
from tasks.report import report_index


@stage_flow("index", run_name="{run} index")
def index(config: IndexConfig, run: str = "ingest", root: str = "runs") -> None:
    """Embed the run's `snapshot/` and seal `index/`; a snapshot that has changed since is worked in.

    Args:
        config: Settings of the index.
        run: Folder under the root; under a known name a run goes on.
        root: Local folder or any fsspec URI, the same for every stage and worker.
    """
    with running(run, root) as here:
        snapshot = here.store.child("snapshot")
        snapshot.open_sealed("snapshot")
        reads, settings = {"snapshot": snapshot}, config.model_dump()
        with making(here, "index", settings, reads, folder="index", follows_inputs=True) as work:
            if not work.done:
                build_index(config, here, work.store)
            report_index(here)
