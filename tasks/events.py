"""Prefect events of a run: automations act on them, and the UI's feed shows them."""

from __future__ import annotations

from typing import Any

from prefect.events import emit_event

from kernel_core.runs.holds import hold
from kernel_core.runs.resolve import locate_checkpoint
from kernel_core.runs.run_folder import Run
from kernel_core.runs.stage_record import sealed_digest
from kernel_core.store import Store

TRAINED = "kernel-dojo.training.finished"
"""A training reached its end; the resource has the policy's device, the checkpoint and its digest."""
STAGE_CHANGED = "kernel-dojo.stage"
"""With `.promoted` or `.demoted`: a training entered another stage of its curriculum."""
PROMOTED = "kernel-dojo.checkpoint.promoted"
"""A checkpoint passed the gate and has the name under which others find it."""


def training_finished(run: Run, device: str) -> None:
    """Hold the newest checkpoint for its promotion check; the event names it by step and digest."""
    checkpoint = locate_checkpoint(run.root, run.name)
    hold(run.store, checkpoint)
    labels = {
        "kernel-dojo.device": device,
        "kernel-dojo.checkpoint": f"{run.name}@{int(checkpoint.rpartition('-')[2])}",
        "kernel-dojo.digest": sealed_digest(Store(checkpoint)),
    }
    emit(TRAINED, run, labels)


def emit(event: str, run: Run, labels: dict[str, str] | None = None, **payload: Any) -> None:
    """Send an event about a run; `labels` are what an automation can match, `payload` is what it can use."""
    resource = {
        "prefect.resource.id": f"kernel-dojo.run.{run.name}",
        "prefect.resource.name": run.name,
        "kernel-dojo.root": run.root,
        **(labels or {}),
    }
    emit_event(event, resource=resource, payload=payload)
