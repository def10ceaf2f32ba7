"""On which problems, and how often, a policy was asked: shown beside every scorecard, night and winner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_core.runs.run_folder import Run


def conditions_of(run: Run, stage: str) -> str:
    """The settings that decide what a stage's figures mean, in words; empty without its record."""
    record = run.stage(stage)
    return conditions_in_words(record.config) if record is not None else ""


def conditions_in_words(config: Mapping[str, Any]) -> str:
    """Suite, split, seed, limit, turns and samples of the settings of an evaluation or a best-of-N."""
    problems, turns = config["problems"], config["rollout"]["turns"]
    samples = config.get("samples_per_problem") or config["n"]
    if config.get("mode") == "sequential":
        turns, samples = config["n"], 1
    mix = " + ".join(one["suite"] for one in problems.get("mix") or ())
    limit = problems["limit"] if problems["limit"] is not None else "none"
    return (
        f"suite {mix or problems['suite']}, split {problems['split']}, seed {problems['seed']}, "
        f"limit {limit}, turns {turns}, samples {samples}"
    )
