"""Claim: writing the next step's answers during the update shortens a step, at equal learning per candidate.

python benchmarks/sample_ahead.py [--steps 8] [--seed 0]

Two trainers, in order and one step ahead, take turns step by step on one machine, so that other load meets
both. What is begun ahead is there before a step ends, so that neither works in the other's time. Printed are
seconds a step from the second on, their ratio, and what each arm earned and got right over the same number of
judged answers.
"""

from __future__ import annotations

import argparse
import tempfile
import time

import numpy as np

from kernel_core.config import GymConfig, TrainConfig
from kernel_core.gym.contract.requests import Gym
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.learn.loop import Trainer
from kernel_core.policy import open_policy
from kernel_core.store import Store

ARMS = {"in order": False, "one step ahead": True}
COLUMNS = ("seconds/update", "reward/mean", "kernel/correct_rate")


def config_of(ahead: bool, steps: int, seed: int) -> TrainConfig:
    """Both arms sample from a copy and weigh by the same cap, so that only the age of the answers differs."""
    return TrainConfig.model_validate(
        {
            "steps": steps,
            "seed": seed,
            "problems_per_step": 4,
            "group_size": 8,
            "sample_ahead": ahead,
            "sampler": {"kind": "copy"},
            "mismatch": {"importance_cap": 2.0},
            "rollout": {"turns": 1, "exemplars": 0},
            "curriculum": {"probe_every": 1000, "probe_problems": 2},
            "gym": {"workers": 2},
        }
    )


def main() -> None:
    """Run both arms in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in ARMS}
    with tempfile.TemporaryDirectory() as folder, open_gym(GymConfig(workers=2)) as gym:
        stores = {name: Store(f"{folder}/{name}") for name in ARMS}
        trainers = {
            name: trainer_of(config_of(ahead, arguments.steps, arguments.seed), stores[name], gym)
            for name, ahead in ARMS.items()
        }
        for _ in range(arguments.steps):
            for name, trainer in trainers.items():
                begun = time.monotonic()
                trainer.step()
                seconds[name].append(time.monotonic() - begun)
        for trainer in trainers.values():
            trainer.close()
        rows = {name: list(stores[name].lines("metrics.jsonl"))[1:] for name in ARMS}
    print("| arm | seconds a step | update | reward | correct | largest KL of the sampler |")
    print("|---|---|---|---|---|---|")
    for name, found in rows.items():
        mean = {key: float(np.mean([row[key] for row in found])) for key in COLUMNS}
        worst = max(row.get("update/sampler_kl", 0.0) for row in found)
        print(
            f"| {name} | {np.mean(seconds[name][1:-1]):.2f} | {mean['seconds/update']:.2f} | "
            f"{mean['reward/mean']:.3f} | {mean['kernel/correct_rate']:.3f} | {worst:.2g} |"
        )
    in_order, ahead = (np.array(seconds[name][1:-1]) for name in ARMS)
    print(f"\nin order a step takes {in_order.mean() / ahead.mean():.2f} times as long")


def trainer_of(config: TrainConfig, store: Store, gym: Gym) -> Trainer:
    """A trainer on the shipped policy, with verdicts of its own."""
    policy = open_policy(config.policy)
    return Trainer(config, store, policy, gym)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
