"""Held-out problems, the same for every policy that a benchmark compares."""

from __future__ import annotations

from kernel_core.config import EvaluateConfig, TrainConfig
from kernel_core.runs.configure import build

SEED = 1000


def held_out_evaluation(config: TrainConfig, problems: int, samples: int, seed: int = 0) -> EvaluateConfig:
    """So many conversations for each of so many problems, as in training; `seed` draws the conversations."""
    return build(
        EvaluateConfig,
        {
            "problems": {"split": "held_out", "limit": problems, "seed": SEED},
            "samples_per_problem": samples,
            "k": [1],
            "policy": config.policy.model_dump(),
            "rollout": config.rollout.model_dump(),
            "gym": config.gym.model_dump(),
            "seed": SEED + seed,
        },
    )
