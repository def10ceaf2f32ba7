"""Claim: a GPU judges 3,000 kernels an hour where each problem has one.

    dojo judge --help                                  # rows of a batch: problem, kernel
    KERNELBENCH_ROOT=../KernelBench python benchmarks/judge_rate.py --batch ROWS.jsonl --answers A.jsonl.gz \\
        --seconds 100 --out judged.jsonl

Judges rows of a batch and a model's answers to KernelBench (of `carryover.py answer`) in turn. Each has a
request of its own, `--at-once` of them together, and none begins when the time is over.
Prints two rates, the verdicts and the mean seconds by phase; `--out` has a line for each. The first rate is
of all, until the last has ended. The second counts what ended in the last three quarters of `--seconds`.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from comparison_page import mean_phases
from machine import describe_machine

from kernel_core.config import GymConfig, ProblemsConfig
from kernel_core.dialogue.parse import parse_completion
from kernel_core.errors import DojoError
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.load import load_file, load_problems
from kernel_core.records import Candidate
from kernel_core.runs.configure import build


def main() -> None:
    """Judge until the time is over; print the rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=Path, help="rows with problem and kernel, relative to its folder")
    parser.add_argument("--answers", type=Path, help="of `carryover.py answer`; the first of each problem")
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--at-once", type=int, default=12, help="candidates in work (`gym.in_flight`)")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    parts = [_of_batch(arguments.batch), _of_answers(arguments.answers)]
    for part in parts:
        random.Random(arguments.seed).shuffle(part)
    requests = [one for pair in itertools.zip_longest(*parts) for one in pair if one is not None]
    print(f"{len(requests)} kernels on {describe_machine()}", flush=True)
    config = GymConfig(device=arguments.device, workers=1, in_flight=arguments.at_once)
    with open_gym(config) as gym, arguments.out.open("a") as file:
        gym.judge(requests[-1:])  # the judge is up
        began = time.monotonic()

        def judge(request: JudgeRequest) -> dict[str, Any] | None:
            started = time.monotonic() - began
            if started > arguments.seconds:
                return None
            row = {"began": started} | _judged(gym, request) | {"ended": time.monotonic() - began}
            file.write(json.dumps(row) + "\n")
            file.flush()
            return row

        with ThreadPoolExecutor(arguments.at_once) as threads:
            rows = [row for row in threads.map(judge, requests) if row is not None]
    seconds = max(row["ended"] for row in rows)
    print(f"{len(rows)} judged in {seconds:.0f} s, {3600 * len(rows) / seconds:,.0f} an hour")
    busy_s = 0.75 * arguments.seconds
    busy = [row for row in rows if arguments.seconds - busy_s < row["ended"] <= arguments.seconds]
    print(f"{len(busy)} ended in the last {busy_s:.0f} s, {3600 * len(busy) / busy_s:,.0f} an hour")
    print(dict(Counter(str(row["verdict"]) for row in rows)))
    phases = mean_phases([row["phases_s"] for row in rows])
    print({name: round(mean, 2) for name, mean in phases.items()})


def _judged(gym: Gym, request: JudgeRequest) -> dict[str, Any]:
    row: dict[str, Any] = {"problem": request.problem.id, "verdict": "not judged", "phases_s": {}}
    try:
        [found] = gym.judge([request])
    except DojoError as error:
        return row | {"feedback": str(error)}
    findings = [f"{finding.rule}: {finding.detail}" for finding in found.findings]
    row |= {"verdict": found.verdict, "speedup": found.speedup}
    row |= {"feedback": found.feedback, "findings": findings}
    return row | {"phases_s": found.phases_s}


def _of_batch(file: Path | None) -> list[JudgeRequest]:
    if file is None:
        return []
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [
        JudgeRequest(
            problem=load_file(file.parent / row["problem"]),
            candidate=Candidate.from_source((file.parent / row["kernel"]).read_text()),
            seed=1,
        )
        for row in rows
    ]


def _of_answers(file: Path | None) -> list[JudgeRequest]:
    if file is None:
        return []
    settings = {"suite": "kernelbench", "levels": [1, 2], "split": "all", "audited": False}
    problems = {problem.id: problem for problem in load_problems(build(ProblemsConfig, settings))}
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    return [
        JudgeRequest(
            problem=problems[row["problem"]], candidate=parse_completion(row["text"], row["end"]), seed=1
        )
        for row in rows
        if row["sample"] == 0
    ]


if __name__ == "__main__":
    main()
