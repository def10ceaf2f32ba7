"""Conditions of a run's figures: problems and samples asked, outcomes of the answers, and origins of
folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernel_core.runs.run_folder import Run

if TYPE_CHECKING:
    from kernel_core.evaluation.diagnosis import Diagnosis


def conditions_of(run: Run, stage: str) -> str:
    """Return the settings that decide what a stage's figures mean, in words; empty without its record."""
    record = run.stage(stage)
    return conditions_in_words(record.config) if record is not None else ""


def conditions_in_words(config: Mapping[str, Any]) -> str:
    """Problems, turns, samples and baseline of the settings of an evaluation or a best of N."""
    problems, turns = config["problems"], config["rollout"]["turns"]
    samples = config.get("samples_per_problem") or config["n"]
    if config.get("mode") == "sequential":
        turns, samples = config["n"], 1
    mix = " + ".join(entry["suite"] for entry in problems.get("mix") or ())
    limit = problems["limit"] if problems["limit"] is not None else "none"
    gym = config["gym"]
    speed = f"speed-ups predicted for {gym['predict_gpu']} over eager"
    if gym["device"] == "cuda":
        speed = f"speed-ups measured over the baseline {gym['baseline']}"
    return (
        f"suite {mix or problems['suite']}, split {problems['split']}, seed {problems['seed']}, "
        f"limit {limit}, turns {turns}, samples {samples}, "
        f"tolerance {gym.get('tolerance', 'measured')}, {speed}"
    )


def diagnosis_of(run: Run, folder: str) -> Diagnosis:
    """Return the diagnosis of an evaluation's answers."""
    from kernel_core.evaluation.diagnosis import answer_rows, diagnose

    record = run.stage(folder)
    rows = answer_rows(run.store.child(folder))
    if record is None:
        return diagnose(rows, 0)
    limit = record.config["rollout"]["sampling"]["max_new_tokens"]
    return diagnose(rows, limit, record.config["policy"]["kind"])


def lineage_of(run: Run) -> list[dict[str, Any]]:
    """Return one row per finished stage: the digests of its output and of its inputs."""
    records = [record for record in run.stages() if record.output]
    makers = {record.output: record.stage for record in records}
    return [
        {
            "stage": record.stage,
            "made": record.output[:12],
            "of": ", ".join(
                f"{name} {digest[:12]}" + (f" of {makers[digest]}" if digest in makers else "")
                for name, digest in record.inputs.items()
            ),
            "seconds": record.seconds,
        }
        for record in records
    ]
