"""Claim: the judge is many times faster than KernelBench's evaluator, and agrees where that one is right.

Judges the kernels under `benchmarks/kernelbench/` for KernelBench's own problems, at their own sizes, on
one GPU, with both evaluators: ours all at once, as in training; KernelBench's `eval_kernel_against_ref` in a
fresh process each, with 5 correctness trials and 100 timed calls. Prints both verdicts and times,
evaluations an hour, and where ours spends its time. What is done is kept in `--work`, so that it can go on
in pieces.

    KERNELBENCH_ROOT=../KernelBench python benchmarks/judge_against_kernelbench.py --work /tmp/peer
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import describe_machine
from rich.console import Console

from kernel_core.config import GymConfig
from kernel_core.gym import open_gym
from kernel_core.gym.pool import PooledGym
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.gym.report import judge_report
from kernel_core.problems.load import load_file
from kernel_core.records import Candidate

KERNELS = Path(__file__).parent / "kernelbench"
RESULTS = Path(__file__).parents[1] / "docs" / "results"
COMMAND = "KERNELBENCH_ROOT=../KernelBench python benchmarks/judge_against_kernelbench.py"
PEER_TIMEOUT_S = 300.0

PEER = """
import json, sys, time, types
started = time.monotonic()
for name in ("openai", "litellm", "dotenv", "pydra", "modal"):
    try:
        __import__(name)
    except ImportError:
        # Imported by the package for other purposes than this.
        stub = types.ModuleType(name)
        stub.OpenAI, stub.completion, stub.load_dotenv = object, None, lambda *a, **k: None
        sys.modules[name] = stub
problem, kernel = (open(path).read() for path in sys.argv[1:3])
import torch
from kernelbench.eval import eval_kernel_against_ref
result = eval_kernel_against_ref(
    problem, kernel, measure_performance=True, num_correct_trials=5, num_perf_trials=100,
    device=torch.device("cuda:0"), backend="triton", precision=torch.float32,
)
print(json.dumps({
    "compiled": bool(result.compiled), "correct": bool(result.correctness), "runtime_ms": result.runtime,
    "reference_ms": result.ref_runtime, "inside_s": time.monotonic() - started,
}))
"""


@dataclass(frozen=True)
class Pair:
    """One candidate for one problem."""

    key: str
    kind: str
    problem: Path

    @property
    def name(self) -> str:
        """As it is filed."""
        return f"{self.key}_{self.kind}"

    @property
    def kernel(self) -> Path:
        """The candidate's file."""
        return KERNELS / f"{self.name}.py"


def main() -> int:
    """Run what is missing, as far as the seconds go; print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where results are kept")
    parser.add_argument("--seconds", type=float, default=1e9, help="for KernelBench's evaluator, this time")
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--first", nargs="*", default=[], help="candidates for KernelBench to begin with")
    parser.add_argument("--write", action="store_true", help="write the page and the data to docs/results")
    arguments = parser.parse_args()
    root = Path(os.environ.get("KERNELBENCH_ROOT", ""))
    if not (root / "KernelBench" / "level1").is_dir():
        print("KERNELBENCH_ROOT must name a checkout of KernelBench", file=sys.stderr)
        return 2
    arguments.work.mkdir(parents=True, exist_ok=True)
    pairs = _pairs(root)
    ours = _ours(pairs, arguments.work / "ours.json", arguments.in_flight)
    theirs = _theirs(pairs, arguments.work / "theirs.jsonl", root, arguments.seconds, arguments.first)
    lines = _report(pairs, ours, theirs)
    Console(width=200).print("\n".join(lines), markup=False, highlight=False)
    if arguments.write:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / "judge_h200.json").write_text(json.dumps({"ours": ours, "kernelbench": theirs}, indent=1))
        (RESULTS / "judge_h200.md").write_text("\n".join(lines) + "\n")
    return 0


def _pairs(root: Path) -> list[Pair]:
    keys = sorted({file.stem.rpartition("_")[0] for file in KERNELS.glob("*_honest.py")}, key=_order)
    found = []
    for key in keys:
        level, number = key.split("_")
        problem = next((root / "KernelBench" / f"level{level}").glob(f"{number}_*.py"))
        found += [Pair(key, kind, problem) for kind in ("honest", "wrong")]
    return found


def _order(key: str) -> tuple[int, ...]:
    return tuple(int(part) for part in key.split("_"))


# Ours ---------------------------------------------------------------------------------------------


def _ours(pairs: list[Pair], kept: Path, in_flight: int) -> dict[str, Any]:
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text())
        return found
    config = GymConfig(device="cuda", workers=1, in_flight=in_flight, warm_runners=in_flight)
    opened = time.monotonic()
    with open_gym(config) as gym, ThreadPoolExecutor(in_flight) as pool:
        started = time.monotonic()
        reports = list(pool.map(lambda pair: _judge(gym, pair), pairs))
        wall_s = time.monotonic() - started
    found = {
        "wall_s": wall_s,
        "start_s": started - opened,
        "machine": describe_machine(),
        "candidates": {pair.name: report for pair, report in zip(pairs, reports, strict=True)},
    }
    kept.write_text(json.dumps(found, indent=1))
    return found


def _judge(gym: PooledGym, pair: Pair) -> dict[str, Any]:
    candidate = Candidate.from_source(pair.kernel.read_text())
    [evaluation] = gym.judge([JudgeRequest(problem=load_file(pair.problem), candidate=candidate)])
    report = judge_report(evaluation)
    timing = evaluation.timing
    return {
        **{key: report[key] for key in ("verdict", "speedup", "runtime_ms", "reference_ms", "seconds")},
        "interval_ms": [timing.ci_low_ms, timing.ci_high_ms] if timing else None,
        "feedback": evaluation.feedback,
        "phases_s": evaluation.phases_s,
    }


# Theirs -------------------------------------------------------------------------------------------


def _theirs(
    pairs: list[Pair], kept: Path, root: Path, seconds: float, first: list[str]
) -> dict[str, dict[str, Any]]:
    lines = kept.read_text().splitlines() if kept.exists() else []
    done = {record["name"]: record for record in map(json.loads, lines)}
    order = sorted(pairs, key=lambda pair: random.Random(pair.name).random())
    order.sort(key=lambda pair: pair.name not in first)
    deadline = time.monotonic() + seconds
    for pair in order:
        if pair.name in done or time.monotonic() > deadline:
            continue
        record = _evaluate(pair, root) | {"name": pair.name}
        done[pair.name] = record
        with kept.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)
    return done


def _evaluate(pair: Pair, root: Path) -> dict[str, Any]:
    """A fresh process, as KernelBench's own scripts start it; the seconds are those of the whole process."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    command = [sys.executable, "-c", PEER, str(pair.problem), str(pair.kernel)]
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=PEER_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"seconds": PEER_TIMEOUT_S, "error": "timeout"}
    seconds = time.monotonic() - started
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"seconds": seconds, "error": done.stderr.strip()[-300:]}
    return answer | {"seconds": seconds}


# Report -------------------------------------------------------------------------------------------


def _report(pairs: list[Pair], ours: dict[str, Any], theirs: dict[str, dict[str, Any]]) -> list[str]:
    candidates = ours["candidates"]
    rate = 3600 * len(candidates) / ours["wall_s"]
    both = [pair for pair in pairs if pair.name in theirs]
    lines = [
        "# The judge beside KernelBench's evaluator, on one GPU",
        "",
        f"    {COMMAND} --work DIR --write",
        "",
        f"Machine: {ours['machine']}.",
        "",
        f"Ours: {len(candidates)} candidates for {len(candidates) // 2} problems in {ours['wall_s']:.1f} s, "
        f"{rate:,.0f} evaluations an hour, with each problem's inputs, expected outputs and baseline.",
    ]
    if both:
        their_s = statistics.fmean(theirs[pair.name]["seconds"] for pair in both)
        our_s = ours["wall_s"] / len(candidates)
        lines += [
            "",
            f"KernelBench: {len(both)} of these candidates so far, {their_s:.1f} s each on average, "
            f"{3600 / their_s:,.0f} an hour: **{their_s / our_s:.0f} times** as long as ours.",
        ]
    lines += ["", "## Where ours spends its time", "", *_phases(candidates)]
    lines += ["", "## Candidate by candidate", "", *_table(both or pairs, candidates, theirs)]
    return lines


def _phases(candidates: dict[str, Any]) -> list[str]:
    totals: dict[str, float] = {}
    for one in candidates.values():
        for phase, seconds in one["phases_s"].items():
            totals[phase] = totals.get(phase, 0.0) + seconds
    lines = ["| phase | seconds a candidate, waiting included |", "|---|---|"]
    return lines + [f"| {name} | {seconds / len(candidates):.2f} |" for name, seconds in totals.items()]


def _table(pairs: list[Pair], ours: dict[str, Any], theirs: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| candidate | ours | KernelBench | ours ms | KernelBench ms | ratio | our speed-up | their speed-up "
        "| our s | their s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for pair in pairs:
        mine, other = ours[pair.name], theirs.get(pair.name, {})
        verdict = (
            "" if not other else other.get("error") or ("correct" if other["correct"] else "not correct")
        )
        times = mine["runtime_ms"], other.get("runtime_ms") if verdict == "correct" else None
        ratio = times[0] / times[1] if times[0] and times[1] else None
        speedup = other["reference_ms"] / times[1] if times[1] and other.get("reference_ms") else None
        cells = [
            f"L{pair.problem.parent.name[-1]} {pair.problem.stem} {pair.kind}",
            mine["verdict"],
            verdict[:40],
            _number(times[0]),
            _number(times[1]),
            _number(ratio),
            _number(mine["speedup"]),
            _number(speedup),
            f"{mine['seconds']:.1f}",
            f"{other['seconds']:.1f}" if other else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main())
