"""Claim: the kernels of the suite `modules` are right at their own sizes on a GPU, and this fast.

Judges the kernels of drawn problems, family by family, and appends one line a kernel to `--out`; kernels that
are there already are not judged again, so a run that was cut goes on. `--report` prints the table alone, and
`--keep` writes what the cold start reads to choose the grades that it teaches.

    python benchmarks/modules_full_size.py --out /tmp/modules.jsonl --draws 4 --seconds 500
    python benchmarks/modules_full_size.py --out /tmp/modules.jsonl --keep data/measured_grades.parquet
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import pandas as pd
from machine import describe_machine

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.modules.generate import FAMILIES, RESERVED, generate_modules
from kernel_core.records import Candidate, Problem

REQUESTS_AT_ONCE = 48


def main() -> None:
    """Judge what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=4, help="problems a family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--seconds", type=float, default=500.0, help="begin nothing new after so long")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--mistakes", action="store_true", help="judge the kernels with a planted fault too")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--keep", type=Path, help="write the verdicts and speed-ups to this Parquet file")
    arguments = parser.parse_args()
    if not arguments.report:
        _judge(arguments)
    rows = _read(arguments.out)
    print(_table(rows))
    if arguments.keep:
        frame = _with_grades(rows)[["family", "problem", "grade", "verdict", "speedup", "own_share"]]
        frame.to_parquet(arguments.keep, index=False, compression="zstd")


def _judge(arguments: argparse.Namespace) -> None:
    began, rows = time.monotonic(), _read(arguments.out)
    known = {(row["problem"], row["kernel"]) for row in rows}
    work = [entry for entry in _kernels(arguments) if (entry[0].id, entry[1]["kernel"]) not in known]
    print(f"{len(work)} kernels to judge on {describe_machine()}", flush=True)
    with open_gym(GymConfig(device=arguments.device, workers=1)) as gym, arguments.out.open("a") as file:
        for start in range(0, len(work), REQUESTS_AT_ONCE):
            part = work[start : start + REQUESTS_AT_ONCE]
            if time.monotonic() - began > arguments.seconds:
                print("stopped in time; the same command goes on", flush=True)
                return
            requests = [
                JudgeRequest(problem=problem, candidate=Candidate.from_source(source), seed=arguments.seed)
                for problem, _, source in part
            ]
            for (problem, row, _), evaluation in zip(part, gym.judge(requests), strict=True):
                row |= {"problem": problem.id, "verdict": evaluation.verdict, "speedup": evaluation.speedup}
                share = evaluation.provenance.own_kernel_share if evaluation.provenance else None
                row |= {
                    "own_share": share,
                    "feedback": evaluation.feedback[:600],
                    "seconds": evaluation.seconds,
                }
                file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{time.monotonic() - began:.0f} s: {part[-1][0].family}", flush=True)


def _kernels(arguments: argparse.Namespace) -> list[tuple[Problem, dict[str, Any], str]]:
    """Problem, row and source of every kernel, families in turn."""
    kernels = []
    for family in arguments.families:
        split = "held_out" if family in RESERVED else "train"
        for made in generate_modules(split, arguments.draws, arguments.seed, (family,)):
            for number, kernel in enumerate(made.kernels):
                if kernel.grade == "mistake" and not arguments.mistakes:
                    continue
                row = {"family": family, "kernel": f"{number}-{kernel.grade}", "fault": kernel.fault}
                kernels.append((made.problem, row, kernel.source))
    return kernels


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _with_grades(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the kernels without a planted fault, with a column `grade`."""
    frame = pd.DataFrame(rows)
    frame = frame[frame["fault"] == ""]
    return frame.assign(grade=frame["kernel"].str.split("-").str[1])


def _table(rows: list[dict[str, Any]]) -> str:
    """A row a family: kernels, how many are right, and the median speed-up of each grade."""
    if not rows:
        return "nothing was judged"
    frame = _with_grades(rows)
    lines = []
    for family, part in frame.groupby("family"):
        right = part[part["verdict"] == "correct"]
        medians = right.groupby("grade")["speedup"].median().round(2).to_dict()
        lines.append(f"{family:32} {len(right):3} of {len(part):3} correct   {medians}")
    wrong = frame[frame["verdict"] != "correct"]
    lines += [
        f"{row.verdict}: {row.problem} {row.kernel}: {row.feedback[:200]}" for row in wrong.itertuples()
    ]
    total = (frame["verdict"] == "correct").mean()
    return "\n".join([*lines, f"{len(frame)} kernels, {total:.1%} correct"])


if __name__ == "__main__":
    main()
