"""Settings to judge the answers of a run again, beside its first scorecard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_core.config.base import laid_over
from kernel_core.dialogue.answers import FILE, PIECES
from kernel_core.errors import ConfigError, NotFound
from kernel_core.gym.contract.version import GYM_VERSION
from kernel_core.runs.run_folder import Run
from kernel_core.store import digest_of


def parameters_to_judge_again(run: Run, folder: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of the flow `evaluate` that judge the answers in a folder of the run again.

    Problems, samples and seed are those of the first judging. The judge has today's defaults on the same kind
    of device, under the settings in `chosen`. Equal settings and an equal judge give the same new folder, so
    that a judging that was cut goes on. Without `folder` the run must have answers in one folder only.
    """
    folder = folder or _only_folder(run)
    record = run.stage(folder)
    if record is None or not _has_answers(run, folder):
        raise NotFound(
            f"run {run.name!r} has no answers in {folder!r}; it has {', '.join(run.store.names())}"
        )
    asked = record.config
    config: dict[str, Any] = {
        name: asked[name] for name in ("problems", "rollout", "seed", "k") if name in asked
    }
    config |= {"gym": {"device": asked["gym"]["device"]}, "answers": run.store.path(folder)}
    in_a_row = asked.get("mode") == "sequential"
    config["samples_per_problem"] = 1 if in_a_row else asked.get("samples_per_problem") or asked["n"]
    if in_a_row:
        config["rollout"] = {**asked["rollout"], "turns": asked["n"]}
    config = laid_over(config, chosen.get("config") or {})
    name = f"{folder}-judged-by-{GYM_VERSION}-{digest_of(config)[:8]}"
    return {"run": run.name, "root": run.root, "name": name, "config": config}


def _only_folder(run: Run) -> str:
    """Return the only folder of the run with answers of its own."""
    again = {record.stage for record in run.stages() if record.config.get("answers")}
    folders = [name for name in run.store.names() if name not in again and _has_answers(run, name)]
    if not folders:
        raise NotFound(f"run {run.name!r} keeps no answers; runs made before answers were kept have none")
    if len(folders) > 1:
        raise ConfigError(f"run {run.name!r} has answers in {', '.join(folders)}; name one with --folder")
    return folders[0]


def _has_answers(run: Run, folder: str) -> bool:
    return run.store.exists(f"{folder}/{FILE}") or run.store.exists(f"{folder}/{PIECES}")
