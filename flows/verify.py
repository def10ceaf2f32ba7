"""A snapshot → the same snapshot, its kernels judged."""

from __future__ import annotations

from flows.running import running
from flows.stage_flow import stage_flow
from kernel_core.config import VerifyConfig
from tasks.corpus import verify_snapshot
from tasks.report import report_corpus


@stage_flow("verify", run_name="{run} verify")
def verify(config: VerifyConfig, run: str = "ingest", root: str = "runs") -> None:
    """Judge the run's `snapshot/` and seal it again with `verified_*` filled in."""
    with running(run, root) as here:
        snapshot = here.store.child("snapshot")
        snapshot.open_sealed("snapshot")
        verify_snapshot(config, here)
        report_corpus(here)
