"""A whole RL step: writing beside judging against one after the other, and how much of it the GPU works.

    python benchmarks/rl_step.py [--device cuda] [--policy FOLDER] [--steps 4] [--write]

The same steps twice, from the same policy (the shipped one by default) on the same problems, with the same
results: with `rollout.overlap`, where some conversations are written while others are judged, and without,
where a step generates, judges and updates in sequence. The first step of each is not counted. The judge works
on the host's cores (`--set gym.device=cuda`: on the GPU, where writing beside it would disturb its clock).
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from machine import describe_machine

from flows.presets import preset
from kernel_core.config import TrainConfig
from kernel_core.runs.configure import build, override
from kernel_core.store import Store

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PRESET = "learn"
_LOOK_S = 0.05
PAGE = """# A whole RL step

    {command}

Machine: {machine}. {steps} steps of {problems} problems, {group} conversations each, {turns} turns; medians.

| | seconds a step | writing | judging | update | the GPU works |
|---|---|---|---|---|---|
{rows}

Without overlap a step takes {ratio:.2f} times as long. Judging counts where at least one answer was with the
judge; beside it others are written.
"""


def main() -> None:
    """Print the table; with --write also the page."""
    arguments = _arguments()
    config = _config(arguments)
    found = {overlap: _measure(arguments, config, overlap) for overlap in (True, False)}
    ratio = found[False]["seconds"] / found[True]["seconds"]
    names = {True: "writing beside judging", False: "in sequence"}
    page = PAGE.format(
        command=f"python benchmarks/rl_step.py --device {arguments.device} --steps {arguments.steps} --write",
        machine=describe_machine(),
        steps=arguments.steps,
        problems=config.problems_per_step,
        group=config.group_size,
        turns=config.rollout.turns,
        rows="\n".join(_row(names[overlap], one) for overlap, one in found.items()),
        ratio=ratio,
    )
    print(page)
    if arguments.write:
        (RESULTS / "rl_step.md").write_text(page)


def _config(arguments: argparse.Namespace) -> TrainConfig:
    settings = [
        f"policy.device={arguments.device}",
        f"policy.decoding={'static' if arguments.device == 'cuda' else 'growing'}",
        f"gym.workers={len(os.sched_getaffinity(0))}",
        f"steps={arguments.steps + 1}",
        "problems_per_step=16",
        "rollout.exemplars=0",
        "rollout.sampling.batch_size=32",
        "curriculum.only=speed",
        "curriculum.probe_every=1000",
        "curriculum.probe_problems=1",
        *arguments.settings,
    ]
    return build(TrainConfig, override(preset("train", PRESET)["config"], settings))


def _measure(arguments: argparse.Namespace, config: TrainConfig, overlap: bool) -> dict[str, float]:
    """Medians over steps; what was judged before is forgotten."""
    from kernel_core.gym.pool.open_gym import open_gym
    from kernel_core.learn.loop import Trainer
    from kernel_core.policy import open_policy

    config = config.model_copy(update={"rollout": config.rollout.model_copy(update={"overlap": overlap})})
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as scratch, open_gym(config.gym, Store(f"{scratch}/judged")) as gym:
        policy = open_policy(config.policy, arguments.policy)
        trainer = Trainer(config, Store(f"{scratch}/run"), policy, gym)  # type: ignore[arg-type]
        watch = _Watch(arguments.device)
        while not trainer.done:
            if len(seconds) == 1:
                watch.begin()
            begun = time.monotonic()
            trainer.step()
            seconds.append(time.monotonic() - begun)
        share = watch.end()
        rows = [row for row in Store(f"{scratch}/run").lines("metrics.jsonl") if row["step"] > 1]
        trainer.close()
    phases = {
        name: statistics.median(row.get(f"seconds/{name}", 0.0) for row in rows)
        for name in ("sample", "judging", "update")
    }
    return {"seconds": statistics.median(seconds[1:]), "gpu": share, **phases}


class _Watch:
    """The share of the time in which the GPU had work, as NVML tells it; nothing on a CPU."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"
        self._over = threading.Event()
        self._seen: list[float] = []
        self._thread = threading.Thread(target=self._look, daemon=True)

    def begin(self) -> None:
        """From now on."""
        if self._on_gpu:
            self._thread.start()

    def end(self) -> float:
        """The mean so far."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        return statistics.mean(self._seen) / 100 if self._seen else float("nan")

    def _look(self) -> None:
        import pynvml
        import torch

        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
        handle: Any = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        while not self._over.wait(_LOOK_S):
            self._seen.append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def _row(name: str, one: dict[str, float]) -> str:
    works = "" if math.isnan(one["gpu"]) else f"{one['gpu']:.0%}"
    return (
        f"| {name} | {one['seconds']:.1f} | {one['sample']:.1f} | {one['judging']:.1f} | "
        f"{one['update']:.1f} | {works} |"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where the policy is")
    parser.add_argument("--policy", help="folder of a policy; by default the one that is shipped")
    parser.add_argument("--steps", type=int, default=4, help="steps that count")
    parser.add_argument("--write", action="store_true", help="write docs/results/rl_step.md")
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="key.sub=value over the preset")
    return parser.parse_args()


if __name__ == "__main__":
    main()
