"""Claim: speed-ups that the CPU judge predicts from traffic rank kernels as an H200 does.

Predicts the speed-up of each honest kernel under `tests/fixtures/kernelbench/` on this machine's CPU.
`judge_against_kernelbench.py --write` measured the same kernels on a GPU. Prints the rank correlation,
draws both.

    KERNELBENCH_ROOT=../KernelBench python benchmarks/predicted_and_measured.py
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from kernelbench_pairs import MEASURED, Pair, kernelbench_pairs, kernelbench_root
from kernelbench_problems import CPU_SIZES
from machine import describe_machine
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.load import load_file
from kernel_core.records import Candidate

RESULTS = Path(__file__).parents[1] / "docs" / "results"
FAR = 1.3
"""A kernel is listed where prediction and measurement differ by more than this factor."""
COMMAND = "KERNELBENCH_ROOT=../KernelBench python benchmarks/predicted_and_measured.py --write"


def main() -> int:
    """Predict, compare, print, and with `--write` keep the page and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--measured", type=Path, default=MEASURED)
    parser.add_argument("--write", action="store_true", help="write docs/results/prediction.md and .png")
    arguments = parser.parse_args()
    root = kernelbench_root()
    measured = json.loads(arguments.measured.read_text())
    honest = [pair for pair in kernelbench_pairs(root) if pair.kind == "honest"]
    rows = _compare(honest, _predict(honest), measured["speedups"])
    lines = _page(rows, measured["machine"])
    print("\n".join(lines))
    if arguments.write:
        (RESULTS / "prediction.md").write_text("\n".join(lines) + "\n")
        _draw(rows).print_png(str(RESULTS / "prediction.png"))
    return 0


def _predict(pairs: list[Pair]) -> dict[str, float | None]:
    requests = []
    for pair in pairs:
        problem = load_file(pair.problem)
        sizes = {**problem.constants, **CPU_SIZES[pair.key]}
        candidate = Candidate.from_source(pair.source)
        requests.append(JudgeRequest(problem=problem, candidate=candidate, sizes=sizes, seed=0))
    with open_gym(GymConfig(workers=os.cpu_count() or 2)) as gym:
        evaluations = gym.judge(requests)
    return {
        pair.name: evaluation.predicted_speedup for pair, evaluation in zip(pairs, evaluations, strict=True)
    }


def _compare(pairs: list[Pair], predicted: dict[str, float | None], measured: dict[str, Any]) -> pd.DataFrame:
    """One row a kernel that both know."""
    return pd.DataFrame(
        {
            "problem": f"L{pair.problem.parent.name[-1]} {pair.problem.stem}",
            "predicted": predicted[pair.name],
            "measured": measured[pair.name],
        }
        for pair in pairs
        if predicted[pair.name] and pair.name in measured
    )


def _page(rows: pd.DataFrame, machine: str) -> list[str]:
    ranks = rows[["predicted", "measured"]].rank()
    ratio = rows["predicted"] / rows["measured"]
    far = rows[(ratio > FAR) | (ratio < 1 / FAR)]
    return [
        "# Predicted and measured speed-ups",
        "",
        f"    {COMMAND}",
        "",
        f"Predicted on {describe_machine()}; measured on {machine}.",
        "",
        f"{len(rows)} honest kernels for KernelBench's problems: rank correlation "
        f"**{ranks['predicted'].corr(ranks['measured']):.3f}**; predicted over measured is "
        f"{ratio.median():.2f} in the median, {ratio.quantile(0.1):.2f} to {ratio.quantile(0.9):.2f} for "
        "four fifths of them.",
        "",
        "![predicted against measured](prediction.png)",
        "",
        f"Off by more than {FAR - 1:.0%}:",
        "",
        "| problem | predicted | measured |",
        "|---|---|---|",
        *(f"| {row.problem} | {row.predicted:.2f} | {row.measured:.2f} |" for row in far.itertuples()),
    ]


def _draw(rows: pd.DataFrame) -> FigureCanvasAgg:
    figure = Figure(figsize=(6, 6), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.loglog(rows["measured"], rows["predicted"], "o", color="#1f5fa8", alpha=0.7)
    ends = [
        0.8 * rows[["predicted", "measured"]].min().min(),
        1.25 * rows[["predicted", "measured"]].max().max(),
    ]
    axes.plot(ends, ends, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlabel="measured speed-up", ylabel="predicted speed-up", xlim=ends, ylim=ends)
    return canvas


if __name__ == "__main__":
    sys.exit(main())
