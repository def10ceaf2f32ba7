"""Ingesting and verifying as tasks."""

from __future__ import annotations

import logging

from kernel_core.config import GymConfig, IngestConfig, VerifyConfig
from kernel_core.runs.host_gpus import require_gpu
from kernel_core.runs.judges import judging
from kernel_core.runs.run_folder import Run
from kernel_core.store import Manifest, Store
from tasks.faults import retried_task
from tasks.gpu import gpu_slot
from tasks.progress import StageProgress

log = logging.getLogger(__name__)


LAYERS_GYM = GymConfig(deadline_s=8.0)
"""The judge of modules with swapped layers. A module that takes longer under the interpreter is left out."""


@retried_task("build snapshot", "ingest")
def build_snapshot(config: IngestConfig, run: Run, store: Store) -> Manifest:
    """Sources into a sealed snapshot; answers of a source `problems:FOLDER` are judged on this host's CPU."""
    from kernel_core.corpus.snapshot import build_snapshot

    with StageProgress(run.name, "ingest") as progress:
        return build_snapshot(config, store, progress, open_judges=lambda: judging(LAYERS_GYM, run))


@retried_task("verify snapshot", "ingest")
def verify_snapshot(config: VerifyConfig, run: Run) -> None:
    """Judge the snapshot's kernels, going on where an earlier try was, and seal it with what was found."""
    from kernel_core.evaluation.verify_snapshot import verify_snapshot

    require_gpu(gym=config.gym)
    snapshot, work = run.store.child("snapshot"), run.store.child("verify")
    with (
        gpu_slot(config.gym.device),
        judging(config.gym, run) as gym,
        StageProgress(run.name, "verify") as progress,
    ):
        found = verify_snapshot(config, snapshot, work, gym, progress)
    log.info("%d kernels judged: %s", found.judged, found.verdicts)
    if found.not_judged:
        log.info("not judged: %s", found.not_judged)
