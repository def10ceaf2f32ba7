"""Claim: four GPUs of one host judge at least 3.6 times as many kernels an hour as one.

A gym of one GPU and a gym of all judge the same candidates, in groups as in training. These are the kernels
under `tests/fixtures/kernelbench/`, as they are and compiled for other numbers of warps. Neither gym uses the
other's cache. Finished work is kept in `--work`.

    KERNELBENCH_ROOT=../KernelBench python benchmarks/judge_scaling.py --work /tmp/scaling --write
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from comparison_page import mean_phases
from kernelbench_pairs import Pair, kernelbench_pairs, kernelbench_root
from machine import describe_machine

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.load import load_file
from kernel_core.records import Candidate

RESULTS = Path(__file__).parents[1] / "docs" / "results"
COMMAND = "KERNELBENCH_ROOT=../KernelBench python benchmarks/judge_scaling.py --work DIR{options} --write"
BAR = 3.6


def main() -> int:
    """Judge with each number of GPUs that is not done yet; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where results are kept")
    parser.add_argument("--gpus", type=int, nargs="*", default=[torch.cuda.device_count(), 1])
    parser.add_argument("--warps", type=int, nargs="*", default=[2, 8], help="of the groups' further kernels")
    parser.add_argument("--write", action="store_true", help="write the table to docs/results")
    arguments = parser.parse_args()
    root = kernelbench_root()
    arguments.work.mkdir(parents=True, exist_ok=True)
    pairs = scaling_pairs(root, arguments.warps)
    runs = {gpus: _kept(pairs, gpus, arguments.work / f"gpus_{gpus}.json") for gpus in arguments.gpus}
    lists = {"--warps": arguments.warps, "--gpus": arguments.gpus}
    options = "".join(f" {name} {' '.join(map(str, values))}" for name, values in lists.items())
    lines = _page(runs, COMMAND.format(options=options))
    print("\n".join(lines))
    if arguments.write:
        (RESULTS / "judge_scaling.md").write_text("\n".join(lines) + "\n")
    return 0


def scaling_pairs(root: Path, warps: list[int]) -> list[Pair]:
    """Each kernel as it is and compiled for these numbers of warps."""
    return [replace(pair, warps=count) for pair in kernelbench_pairs(root) for count in (0, *warps)]


def _kept(pairs: list[Pair], gpus: int, kept: Path) -> dict[str, Any]:
    if kept.exists():
        known: dict[str, Any] = json.loads(kept.read_text())
        return known
    found = judge_all(pairs, gpus)
    kept.write_text(json.dumps(found, indent=1))
    return found


def judge_all(pairs: list[Pair], gpus: int) -> dict[str, Any]:
    """Judge all at once with so many GPUs: how long it took, by phase, and what was found."""
    requests = [
        JudgeRequest(problem=load_file(pair.problem), candidate=Candidate.from_source(pair.source))
        for pair in pairs
    ]
    with open_gym(GymConfig(device="cuda", workers=gpus)) as gym:
        started = time.monotonic()
        evaluations = gym.judge(requests)
        seconds = time.monotonic() - started
    return {
        "machine": describe_machine(),
        "seconds": seconds,
        "candidates": len(requests),
        "verdicts": {
            pair.name: str(evaluation.verdict) for pair, evaluation in zip(pairs, evaluations, strict=True)
        },
        "phases_s": mean_phases([evaluation.phases_s for evaluation in evaluations]),
    }


def _page(runs: dict[int, dict[str, Any]], command: str) -> list[str]:
    rates = {gpus: 3600 * run["candidates"] / run["seconds"] for gpus, run in runs.items()}
    fewest, most = min(rates), max(rates)
    same = {
        name for name, verdict in runs[most]["verdicts"].items() if runs[fewest]["verdicts"][name] == verdict
    }
    ratio = rates[most] / rates[fewest]
    count = len(runs[most]["verdicts"])
    return [
        "# The judge on several GPUs of one host",
        "",
        f"    {command}",
        "",
        f"Machine: {runs[most]['machine']}.",
        "",
        "| GPUs | candidates | seconds | evaluations an hour |",
        "|---|---|---|---|",
        *(
            f"| {gpus} | {runs[gpus]['candidates']} | {runs[gpus]['seconds']:.1f} | {rates[gpus]:,.0f} |"
            for gpus in sorted(runs)
        ),
        "",
        f"{most} GPUs judge {ratio:.2f} times as many an hour as {fewest} "
        f"(bar: {BAR:g} for 4). Verdicts are the same for {len(same)} of {count}.",
        "",
        f"| phase | seconds a candidate, waiting included, on {fewest} | on {most} |",
        "|---|---|---|",
        *(
            f"| {name} | {seconds:.2f} | {runs[most]['phases_s'].get(name, 0.0):.2f} |"
            for name, seconds in runs[fewest]["phases_s"].items()
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
