"""Ingesting, verifying and indexing as tasks."""

from __future__ import annotations

import logging

from kernel_core.config import GymConfig, IndexConfig, IngestConfig, VerifyConfig
from kernel_core.runs.host_gpus import require_gpu
from kernel_core.runs.judges import judging
from kernel_core.runs.run_folder import Run
from kernel_core.store import Manifest, Store
from tasks.faults import retried_task
from tasks.gpu import gpu_slot
from tasks.progress import StageProgress

log = logging.getLogger(__name__)

ANSWERS_GYM = GymConfig(deadline_s=8.0)
"""The judge of the generator's answers. One that takes longer under the interpreter is left out."""


@retried_task("build snapshot", "ingest")
def build_snapshot(config: IngestConfig, run: Run, store: Store) -> Manifest:
    """Build a sealed snapshot of the sources; the CPU judges the generator's answers."""
    from kernel_core.corpus.answered_source import Answering
    from kernel_core.corpus.snapshot import build_snapshot
    from kernel_core.harvest.package_problems import training_problems

    answering = Answering(lambda: judging(ANSWERS_GYM, run), training_problems)
    with StageProgress(run.name, "ingest") as progress:
        return build_snapshot(config, store, progress, answering=answering)


@retried_task("verify snapshot", "ingest")
def verify_snapshot(config: VerifyConfig, run: Run) -> None:
    """Judge the snapshot's kernels from where an earlier try stopped, and seal it with their verdicts."""
    from kernel_core.evaluation.verify_snapshot import verify_snapshot

    require_gpu(gym=config.gym)
    snapshot, work = run.store.child("snapshot"), run.store.child("verify")
    with (
        gpu_slot(config.gym.device),
        judging(config.gym, run) as gym,
        StageProgress(run.name, "verify") as progress,
    ):
        verified = verify_snapshot(config, snapshot, work, gym, progress)
    log.info("%d kernels judged: %s", verified.judged, verified.verdicts)
    if verified.not_judged:
        log.info("not judged: %s", verified.not_judged)


@retried_task("build index", "index")
def build_index(config: IndexConfig, run: Run, store: Store) -> Manifest:
    """Build a sealed index of the run's snapshot."""
    from kernel_core.retrieval.index import build_index

    with gpu_slot(config.device), StageProgress(run.name, "index") as progress:
        return build_index(config, run.store.child("snapshot"), store, progress)
