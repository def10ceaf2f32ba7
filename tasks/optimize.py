"""Optimisation of a user's module as tasks, one a stage; each reads what the earlier ones wrote."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_core.config import GymConfig
from kernel_core.report.pages import Rows, key_of
from kernel_core.runs.judges import judging
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.artifacts import show
from tasks.batches import each_batch
from tasks.faults import retried_task
from tasks.gpu import gpu_slot
from tasks.progress import StageProgress

_SEED = 0


@retried_task("profile", "optimize")
def profile_module(target: str, config: GymConfig, store: Store) -> None:
    """Measure and predict the time of every submodule."""
    from kernel_core.optimize.stages import profiled
    from kernel_core.optimize.target import loaded

    with gpu_slot(config.device):
        profiled(loaded(target, config.device), config.device, config.predict_gpu, store)


@retried_task("problems", "optimize")
def write_problems(target: str, config: GymConfig, most_parts: int, run: Run, store: Store) -> None:
    """Write each promising submodule as a problem."""
    from kernel_core.optimize.stages import parts_of, profiled
    from kernel_core.optimize.target import loaded

    module = loaded(target, config.device)
    with StageProgress(run.name, "optimize") as progress:
        rows = profiled(module, config.device, config.predict_gpu, store)
        parts = parts_of(module, rows, store, progress, most_parts)
    show(Rows(key_of(run, "parts"), parts.rows(rows.whole), "Parts to try, with bounds of their gain."))


@retried_task("winners", "optimize")
def confirm_winners(config: GymConfig, winners: Sequence[str], run: Run, store: Store) -> None:
    """Judge candidates of every author for each part, and confirm the best."""
    from kernel_core.optimize.authors import generator, winners_of
    from kernel_core.optimize.stages import Parts, confirmed

    parts = Parts.model_validate(store.read_json("parts.json")).parts
    authors = [generator, *(winners_of(Store(folder)) for folder in winners)]
    kind = "measured" if config.device == "cuda" else "predicted"
    with (
        gpu_slot(config.device),
        judging(config, run) as gym,
        StageProgress(run.name, "optimize") as progress,
    ):
        confirmed(parts, authors, gym, kind, _SEED, store, progress, each_batch)


@retried_task("whole model", "optimize")
def prove_whole(target: str, config: GymConfig, run: Run, store: Store) -> None:
    """Put the winners back, compare and time the whole module, and write the library."""
    from kernel_core.optimize.stages import profiled, read_confirmed, whole_model
    from kernel_core.optimize.target import loaded

    module = loaded(target, config.device)
    rows = profiled(module, config.device, config.predict_gpu, store)
    with gpu_slot(config.device):
        whole = whole_model(module, target, rows, read_confirmed(store), config.device, store)
    place = store.path("library")
    show(Rows(key_of(run, "kernels"), whole.table, f"Kernels in place; the package is {place}."))
    show(Rows(key_of(run, "whole"), whole.rows(), "The whole module with its kernels."))
