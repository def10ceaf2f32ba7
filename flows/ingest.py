"""Corpus sources → one clean snapshot of exemplars."""

from __future__ import annotations

from flows.running import running
from flows.stage_flow import stage_flow
from kernel_core.config import IngestConfig
from kernel_core.runs.stage_record import problems_digest
from tasks.assets import making
from tasks.corpus import build_snapshot
from tasks.report import report_corpus


@stage_flow("ingest", run_name="{run} ingest")
def ingest(config: IngestConfig, run: str = "ingest", root: str = "runs") -> None:
    """Read the sources, drop what repeats or leaks an evaluation problem, and seal `snapshot/`.

    Args:
        config: Settings of the corpus.
        run: Folder under the root; under a known name a run goes on.
        root: Local folder or any fsspec URI, the same for every stage and worker.
    """
    problems = {"problems": problems_digest()}
    with (
        running(run, root) as here,
        making(here, "ingest", config.model_dump(), {}, problems, folder="snapshot") as work,
    ):
        if not work.done:
            build_snapshot(config, here, work.store)
        report_corpus(here)
