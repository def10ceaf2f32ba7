"""Claim: the judge is many times faster than KernelBench's evaluator, and agrees where that one is right.

Judges the kernels under `tests/fixtures/kernelbench/` for KernelBench's own problems, at their own sizes, on
one GPU, with both evaluators: KernelBench's `eval_kernel_against_ref` in a fresh process each, with 5
correctness trials and 100 timed calls; ours all at once, and as in training in groups: each kernel as it is
and compiled for more warps. Prints both verdicts and times, evaluations an hour, and where ours spends its
time. What is done is kept in `--work`, so that it can go on in pieces. On a host with several GPUs
KernelBench's evaluations may go on side by side, each with a GPU of its own; ours has one.

    KERNELBENCH_ROOT=../KernelBench python benchmarks/judge_against_kernelbench.py --work /tmp/peer
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from comparison_page import Runs, comparison_page
from kernelbench_pairs import MEASURED, Pair, kernelbench_pairs, kernelbench_root
from machine import describe_machine
from rich.console import Console

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge.json_report import judge_report
from kernel_core.gym.oracle.problem_module import ProblemModule
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.problems.load import load_file
from kernel_core.records import Candidate

RESULTS = Path(__file__).parents[1] / "docs" / "results"
COMMAND = "KERNELBENCH_ROOT=../KernelBench python benchmarks/judge_against_kernelbench.py"
PEER_TIMEOUT_S = 300.0
SMALL_BYTES = 64 << 20

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


def main() -> int:
    """Run what is missing, as far as the seconds go; print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where results are kept")
    parser.add_argument("--seconds", type=float, default=1e9, help="for KernelBench's evaluator, this time")
    parser.add_argument("--in-flight", type=int, default=12)
    parser.add_argument("--warps", type=int, nargs="*", default=[8], help="of the groups' further kernels")
    parser.add_argument("--gpus", type=int, default=1, help="for KernelBench's evaluations side by side")
    parser.add_argument("--first", nargs="*", default=[], help="candidates for KernelBench to begin with")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the page and tests/fixtures/kernelbench/h200.json",
    )
    arguments = parser.parse_args()
    root = kernelbench_root()
    arguments.work.mkdir(parents=True, exist_ok=True)
    pairs = kernelbench_pairs(root)
    groups = [
        replace(pair, warps=warps) for pair in _as_in_training(pairs) for warps in (0, *arguments.warps)
    ]
    small = [pair for pair in groups if _input_bytes(pair.problem) <= SMALL_BYTES]
    ours = _ours(groups, arguments.work / "ours.json", arguments.in_flight)
    ours_small = _ours(small, arguments.work / "ours_small.json", arguments.in_flight)
    theirs = _theirs(
        pairs, arguments.work / "theirs.jsonl", root, arguments.seconds, arguments.first, arguments.gpus
    )
    runs = Runs(ours, ours_small, theirs)
    lines = comparison_page(pairs, groups, runs, f"{COMMAND} --work DIR --write")
    Console(width=200).print("\n".join(lines), markup=False, highlight=False)
    if arguments.write:
        RESULTS.mkdir(parents=True, exist_ok=True)
        MEASURED.write_text(json.dumps(_speedups(ours), indent=1) + "\n")
        (RESULTS / "judge_h200.md").write_text("\n".join(lines) + "\n")
    return 0


def _speedups(ours: dict[str, Any]) -> dict[str, Any]:
    """Return the measured speed-up of each honest kernel as it is, and the machine."""
    measured = {name: report["speedup"] for name, report in ours["candidates"].items()}
    honest = {name: round(value, 4) for name, value in measured.items() if name.endswith("_honest") and value}
    return {"machine": ours["machine"], "speedups": honest}


def _as_in_training(pairs: list[Pair]) -> list[Pair]:
    """Problem by problem, in an order that has nothing to do with their sizes."""
    keys = sorted({pair.key for pair in pairs})
    random.Random(0).shuffle(keys)
    return sorted(pairs, key=lambda pair: keys.index(pair.key))


def _input_bytes(problem: Path) -> int:
    """Bytes of the tensors that `get_inputs` gives, counted without making them."""
    loaded = load_file(problem)
    inputs = ProblemModule(loaded.source, loaded.id, device="meta").inputs()
    return sum(value.numel() * value.element_size() for value in inputs if isinstance(value, torch.Tensor))


# Ours ---------------------------------------------------------------------------------------------


def _ours(pairs: list[Pair], kept: Path, in_flight: int) -> dict[str, Any]:
    if kept.exists():
        results: dict[str, Any] = json.loads(kept.read_text())
        return results
    config = GymConfig(device="cuda", workers=1, in_flight=in_flight, warm_runners=in_flight)
    opened = time.monotonic()
    with open_gym(config) as gym, ThreadPoolExecutor(in_flight) as pool:
        started = time.monotonic()
        reports = list(pool.map(lambda pair: _judge(gym, pair), pairs))
        wall_s = time.monotonic() - started
    results = {
        "wall_s": wall_s,
        "start_s": started - opened,
        "machine": describe_machine(),
        "candidates": {pair.name: report for pair, report in zip(pairs, reports, strict=True)},
    }
    kept.write_text(json.dumps(results, indent=1))
    return results


def _judge(gym: PooledGym, pair: Pair) -> dict[str, Any]:
    candidate = Candidate.from_source(pair.source)
    [evaluation] = gym.judge([JudgeRequest(problem=load_file(pair.problem), candidate=candidate)])
    report = judge_report(evaluation)
    print(f"{pair.name}: {report['verdict']}, {report['seconds']:.1f} s", flush=True)
    timing = evaluation.timing
    return {
        **{key: report[key] for key in ("verdict", "speedup", "runtime_ms", "reference_ms", "seconds")},
        "interval_ms": [timing.ci_low_ms, timing.ci_high_ms] if timing else None,
        "clocks": [
            [side.sm_mhz, *side.throttled]
            for side in (timing, evaluation.reference_timing)
            if side is not None
        ],
        "feedback": evaluation.feedback,
        "phases_s": evaluation.phases_s,
    }


# Theirs -------------------------------------------------------------------------------------------


def _theirs(
    pairs: list[Pair], kept: Path, root: Path, seconds: float, first: list[str], num_gpus: int
) -> dict[str, dict[str, Any]]:
    lines = kept.read_text().splitlines() if kept.exists() else []
    done = {record["name"]: record for record in map(json.loads, lines)}
    order = sorted(pairs, key=lambda pair: random.Random(pair.name).random())
    order.sort(key=lambda pair: pair.name not in first)
    deadline, gpus = time.monotonic() + seconds, queue.SimpleQueue[str]()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    for gpu in visible.split(",")[:num_gpus] if visible else map(str, range(num_gpus)):
        gpus.put(gpu)

    def evaluate(pair: Pair) -> dict[str, Any] | None:
        if time.monotonic() > deadline:
            return None
        gpu = gpus.get()
        try:
            return _evaluate(pair, root, gpu) | {"name": pair.name, "side_by_side": num_gpus}
        finally:
            gpus.put(gpu)

    with ThreadPoolExecutor(num_gpus) as pool, kept.open("a") as file:
        for record in pool.map(evaluate, [pair for pair in order if pair.name not in done]):
            if record is not None:
                done[record["name"]] = record
                file.write(json.dumps(record) + "\n")
                file.flush()
                print(record, flush=True)
    return done


def _evaluate(pair: Pair, root: Path, gpu: str) -> dict[str, Any]:
    """A fresh process, as KernelBench's own scripts start it; the seconds are those of the whole process."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "CUDA_VISIBLE_DEVICES": gpu,
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


if __name__ == "__main__":
    sys.exit(main())
