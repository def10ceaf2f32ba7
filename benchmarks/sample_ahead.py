"""Claim: writing the next step's answers during the update shortens a step, at equal learning per candidate.

    python benchmarks/sample_ahead.py [--steps 8] [--seed 0]
    python benchmarks/sample_ahead.py --policy FOLDER --device cuda --judges 28 --minutes 3.4
    python benchmarks/sample_ahead.py --policy FOLDER --device cuda --judge-device cuda

The arms take turns step by step on one machine, so that other load meets all of them. What is begun ahead is
there before a step ends, so that none works in another's time. A row is printed as soon as a step is over.

With `--device cuda` a policy learns on GPU 0 and a copy writes on GPU 1, in order and one step ahead alike;
judges work on processors. With `--judge-device cuda` GPU 0 learns and writes and GPU 1 judges. In the arm
`one GPU` all of it takes turns on GPU 0. `--policy` names a Hugging Face model, trained by LoRA adapters.

The last table has medians of seconds, without the first and the last step. Beside them stand means of what
each arm earned and got right over the same number of judged answers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np
import torch
from machine import describe_machine

from kernel_core.config import TrainConfig
from kernel_core.gym.contract.requests import Gym
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.learn.loop import Trainer
from kernel_core.policy import open_policy
from kernel_core.runs.configure import build, override
from kernel_core.runs.placement import placed
from kernel_core.store import Store

BEGUN = time.monotonic()


class Arm(NamedTuple):
    """When answers are written, and which GPU is the second place."""

    ahead: bool
    second_gpu: int


ARMS = {"one GPU": Arm(False, 0), "in order": Arm(False, 1), "one step ahead": Arm(True, 1)}
WAITS = ("seconds/sample", "seconds/judge", "seconds/rollout")
"""Seconds of writing and judging that no update covers; together they are the column `waited`."""
COLUMNS = {
    "seconds/waited": "waited",
    "seconds/judging": "judging",
    "seconds/update": "update",
    "reward/mean": "reward",
    "kernel/correct_rate": "correct",
    "update/sampler_kl": "KL of the sampler",
}
"""Metrics of a step, and their heads in the table."""


def main() -> None:
    """Run the arms in turns, and print the table."""
    arguments = _arguments()
    print(f"{describe_machine()}\n\n| arm | step | seconds | {' | '.join(COLUMNS.values())} |", flush=True)
    print(f"|{'---|' * (3 + len(COLUMNS))}", flush=True)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in arguments.arms}
    with contextlib.ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        configs = {name: config_of(ARMS[name], arguments) for name in arguments.arms}
        places = {config.placement.judge: config.gym for config in configs.values()}
        gyms = {gpus: opened.enter_context(open_gym(gym, None, gpus)) for gpus, gym in places.items()}
        stores = {name: Store(f"{folder}/{name}") for name in arguments.arms}
        trainers = {
            name: opened.enter_context(
                contextlib.closing(trainer_of(config, stores[name], gyms[config.placement.judge]))
            )
            for name, config in configs.items()
        }
        for step in range(1, arguments.steps + 1):
            for name, trainer in trainers.items():
                begun = time.monotonic()
                trainer.step()
                took = time.monotonic() - begun
                rows[name].append({"seconds": took, **_metrics(stores[name])})
                print(f"| {name} | {step} | {_cells(rows[name][-1])} |", flush=True)
            if time.monotonic() - BEGUN > 60 * arguments.minutes:
                break
    _report(rows)


def config_of(arm: Arm, arguments: argparse.Namespace) -> TrainConfig:
    """All arms sample from a copy and weigh by the same cap, so that only times and places differ."""
    on_gpu = arguments.device == "cuda"
    settings: dict[str, Any] = {
        "steps": arguments.steps,
        "seed": arguments.seed,
        "problems_per_step": arguments.problems_per_step,
        "group_size": arguments.group,
        "problems": {"suite": arguments.suite},
        "sample_ahead": arm.ahead,
        "sampler": {"kind": "copy"},
        "mismatch": {"importance_cap": 2.0},
        "rollout": {"turns": 1, "exemplars": 0},
        "curriculum": {"probe_every": 1000, "probe_problems": 2},
        "gym": {"device": arguments.judge_device, "workers": arguments.judges},
        "policy": {"device": arguments.device},
    }
    if arguments.policy:
        settings["policy"] |= {"model": arguments.policy, "lora_rank": 32}
    if on_gpu:
        settings["policy"] |= {"dtype": "bfloat16", "decoding": "static"}
        judged = arguments.judge_device == "cuda"
        second = {"judge" if judged else "sample": [arm.second_gpu]}
        settings["placement"] = {"learn": [0], "sample": [0]} | second
    return placed(build(TrainConfig, override(settings, arguments.settings)), torch.cuda.device_count())


def trainer_of(config: TrainConfig, store: Store, gym: Gym) -> Trainer:
    """A trainer on a policy of its own."""
    return Trainer(config, store, open_policy(config.policy), gym)  # type: ignore[arg-type]


def _metrics(store: Store) -> dict[str, float]:
    """The columns of the newest step."""
    *_, found = store.lines("metrics.jsonl")
    waited = {"seconds/waited": sum(found.get(key, 0.0) for key in WAITS)}
    return {key: (found | waited).get(key, 0.0) for key in COLUMNS}


def _report(rows: dict[str, list[dict[str, float]]]) -> None:
    """Medians of seconds without the first and the last step, and means of the rest."""
    print(f"\n| arm | steps | seconds | {' | '.join(COLUMNS.values())} |\n|{'---|' * (3 + len(COLUMNS))}")
    medians: dict[str, float] = {}
    for name, found in rows.items():
        timed = found[1:-1] or found
        medians[name] = float(np.median([row["seconds"] for row in timed]))
        whole = {
            key: np.median([row[key] for row in timed])
            if key.startswith("seconds")
            else np.mean([row[key] for row in found])
            for key in found[0]
        }
        print(f"| {name} | {len(found)} | {_cells(whole)} |")
    fastest = min(medians, key=lambda name: medians[name])
    for name, seconds in medians.items():
        if name != fastest:
            print(f"\n{name}: a step takes {seconds / medians[fastest]:.2f} times as long as {fastest}")
    first, *others = rows
    for name in others:
        pairs = zip(rows[name], rows[first], strict=False)
        differences = [one["reward/mean"] - other["reward/mean"] for one, other in pairs]
        error = np.std(differences, ddof=1) / len(differences) ** 0.5 if len(differences) > 1 else np.nan
        print(f"\nreward of a step, {name} less {first}: {np.mean(differences):+.3f} ± {error:.3f}")


def _cells(row: dict[str, Any]) -> str:
    return " | ".join(f"{value:.3g}" for value in row.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=60.0, help="from the start; then no step begins")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--arms", nargs="+", choices=tuple(ARMS), default=["in order", "one step ahead"])
    parser.add_argument(
        "--policy", default="", help="folder of a Hugging Face model; else the shipped policy"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the policy")
    parser.add_argument("--judge-device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--judges", type=int, default=max(2, cores - 4), help="processes on a CPU")
    parser.add_argument("--suite", default="generated", help="or another, or a folder of problems")
    parser.add_argument("--problems-per-step", type=int, default=4)
    parser.add_argument("--group", type=int, default=8, help="answers a problem")
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="key.sub=value over all")
    return parser.parse_args()


if __name__ == "__main__":
    main()
