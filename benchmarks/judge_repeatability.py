"""Claim: a speed-up that is judged again, by judges started anew, varies by at most 1 % (3 % below 50 µs).

Judges a few kernels, from 10 µs to several ms, in each of some lives of the gym: nothing is kept from one to
the next, baselines neither. Within a life the candidates are in work together, as in training.

    KERNELBENCH_ROOT=../KernelBench python benchmarks/judge_repeatability.py --lives 5 --write
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from kernelbench_pairs import kernelbench_pairs, kernelbench_root
from machine import describe_machine

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.load import load_file
from kernel_core.records import Candidate, Evaluation

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "docs" / "results" / "judge_repeatability.md"
COMMAND = "KERNELBENCH_ROOT=../KernelBench python benchmarks/judge_repeatability.py --lives 5 --write"
OF_KERNELBENCH = ("1_1", "1_19", "1_23", "1_36", "1_40", "1_48", "1_88", "1_94", "2_9", "2_14")
SMALL_SIZES = ({"M": 256, "N": 1024}, {"M": 1024, "N": 2048}, {"M": 8192, "N": 4096})
SHORT_MS, BAR, BAR_OF_SHORT = 0.05, 0.01, 0.03


def main() -> int:
    """Judge in every life; print and maybe keep the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lives", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write the table to docs/results")
    arguments = parser.parse_args()
    root = kernelbench_root()
    requests = _requests(root)
    judged: dict[str, list[Evaluation]] = {name: [] for name in requests}
    for life in range(arguments.lives):
        with open_gym(GymConfig(device="cuda", workers=1)) as gym:
            for name, evaluation in zip(requests, gym.judge(list(requests.values())), strict=True):
                judged[name].append(evaluation)
        print(f"life {life + 1} of {arguments.lives}", file=sys.stderr, flush=True)
    lines = _page(judged)
    print("\n".join(lines))
    if arguments.write:
        RESULTS.write_text("\n".join(lines) + "\n")
    return 0


def _requests(root: Path) -> dict[str, JudgeRequest]:
    exploits = REPOSITORY / "tests" / "exploits"
    softmax = load_file(exploits / "problems" / "softmax_rows.py")
    candidate = Candidate.from_source((exploits / "honest" / "reductions" / "honest_softmax.py").read_text())
    requests = {
        f"softmax of {sizes['M']} x {sizes['N']}": JudgeRequest(
            problem=softmax, candidate=candidate, sizes=dict(sizes)
        )
        for sizes in SMALL_SIZES
    }
    for pair in kernelbench_pairs(root):
        if pair.kind == "honest" and pair.key in OF_KERNELBENCH:
            problem = load_file(pair.problem)
            requests[f"KernelBench {problem.id}"] = JudgeRequest(
                problem=problem, candidate=Candidate.from_source(pair.source)
            )
    return requests


def _page(judged: dict[str, list[Evaluation]]) -> list[str]:
    rows, missed = [], []
    for name, evaluations in judged.items():
        timed = [one for one in evaluations if one.timing is not None and one.speedup is not None]
        if len(timed) < len(evaluations):
            missed.append(f"{name}: {len(evaluations) - len(timed)} of {len(evaluations)} were not timed")
        if len(timed) < 2:
            continue
        median_ms = statistics.median(one.timing.median_ms for one in timed if one.timing)
        speedups = [one.speedup for one in timed if one.speedup is not None]
        variation = statistics.stdev(speedups) / statistics.fmean(speedups)
        bar = BAR_OF_SHORT if median_ms < SHORT_MS else BAR
        if variation > bar:
            missed.append(f"{name}: {100 * variation:.2f} % of {100 * bar:.0f} %")
        rows.append(
            f"| {name} | {median_ms:.4f} | {statistics.fmean(speedups):.3f} | {100 * variation:.2f} % "
            f"| {100 * bar:.0f} % |"
        )
    lives = max(len(evaluations) for evaluations in judged.values())
    return [
        "# Judged again by judges started anew",
        "",
        f"    {COMMAND}",
        "",
        f"Machine: {describe_machine()}.",
        "",
        f"| kernel | ms | speed-up | coefficient of variation over {lives} lives | bar |",
        "|---|---|---|---|---|",
        *rows,
        "",
        f"Missed: {'; '.join(missed)}." if missed else "No bar is missed.",
    ]


if __name__ == "__main__":
    sys.exit(main())
