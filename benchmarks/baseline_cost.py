"""Claim: the fair baselines cost at most 1.6 times the judging in the first run, and 1.15 times afterwards.

    python benchmarks/baseline_cost.py ANSWERS.jsonl.gz --problems 12 --judged J.jsonl

Judges all stored answers to some of KernelBench's problems on a GPU, with `gym.baseline=eager` and `fair`.
Each is judged first without known baselines and then with kept ones. Prints seconds and ratios.
Problems that J.jsonl has already are left out; the evaluations of the first fair run are added to it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import describe_machine

from kernel_core.config import GymConfig, ProblemsConfig
from kernel_core.dialogue.parse import parse_completion
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.load import load_problems
from kernel_core.records import Baseline, Evaluation, sha256_text
from kernel_core.store import Store

RUNS: tuple[tuple[str, Baseline, bool], ...] = (
    ("eager, first run", "eager", True),
    ("eager, kept", "eager", False),
    ("fair, first run", "fair", True),
    ("fair, kept", "fair", False),
)


def main() -> None:
    """Time each run and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--problems", type=int, default=12)
    parser.add_argument("--judged", type=Path, required=True)
    arguments = parser.parse_args()
    answers = [json.loads(line) for line in gzip.decompress(arguments.answers.read_bytes()).splitlines()]
    known = arguments.judged.read_text().splitlines() if arguments.judged.exists() else []
    done = {json.loads(line)["problem"] for line in known}
    names = sorted({row["problem"] for row in answers} - done, key=sha256_text)[: arguments.problems]
    answers = [row for name in names for row in answers if row["problem"] == name]
    requests = _requests(answers)
    print(f"{len(answers)} answers to {len(names)} problems on {describe_machine()}", flush=True)
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for label, baseline, is_first in RUNS:
            config = GymConfig(device="cuda", workers=1, baseline=baseline)
            with open_gym(config, cache=Store(Path(folder) / baseline)) as gym:
                began = time.monotonic()
                evaluations = gym.judge(requests)
                seconds[label] = time.monotonic() - began
            print(f"{label}: {seconds[label]:.0f} s", flush=True)
            if baseline == "fair" and is_first:
                _keep(arguments.judged, answers, evaluations)
    first = seconds["fair, first run"] / seconds["eager, first run"]
    kept = seconds["fair, kept"] / seconds["eager, kept"]
    print(f"fair over eager: first run {first:.2f}, kept baselines {kept:.2f}")


def _requests(answers: list[dict[str, Any]]) -> list[JudgeRequest]:
    problems = {
        problem.id: problem for problem in load_problems(ProblemsConfig(suite="kernelbench", levels=(1, 2)))
    }
    return [
        JudgeRequest(
            problem=problems[row["problem"]],
            candidate=parse_completion(row["text"], row["end"]),
            seed=0,
            rejudge=True,
        )
        for row in answers
    ]


def _keep(judged: Path, answers: list[dict[str, Any]], evaluations: list[Any]) -> None:
    with judged.open("a") as file:
        for row, evaluation in zip(answers, evaluations, strict=True):
            kept = {"problem": row["problem"], "sample": row["sample"], "verdict": "not judged"}
            if isinstance(evaluation, Evaluation):
                kept |= {
                    "verdict": evaluation.verdict,
                    "speedup": evaluation.speedup,
                    "evaluation": evaluation.model_dump(mode="json"),
                }
            file.write(json.dumps(kept) + "\n")


if __name__ == "__main__":
    main()
