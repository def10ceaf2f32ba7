"""Claim: under `gym.tolerance=field` the judge gives the verdicts of KernelBench's own evaluator.

    KERNELBENCH_ROOT=../KernelBench python benchmarks/kernelbench_verdicts.py ANSWERS.jsonl.gz OUT.jsonl

Runs KernelBench's `eval_kernel_against_ref` on stored answers, each in a fresh process, with five correctness
trials in float32 and without timing. `--at-once` processes share the GPU. Answers that are in OUT are
skipped, so that the command can go on later; an answer whose process ran out of memory is asked again alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from kernel_core.dialogue.parse import parse_completion
from kernel_core.records import Candidate, sha256_text

TIMEOUT_S = 240.0
EVALUATOR = """
import json, os, sys, types
for name in ("openai", "litellm", "dotenv", "pydra", "modal"):
    try:
        __import__(name)
    except ImportError:  # the package imports them for other purposes
        stub = types.ModuleType(name)
        stub.OpenAI, stub.completion, stub.load_dotenv = object, None, lambda *a, **k: None
        sys.modules[name] = stub
problem, kernel = (open(path).read() for path in sys.argv[1:3])
import torch
torch.set_num_threads(2)
from kernelbench.eval import eval_kernel_against_ref
result = eval_kernel_against_ref(
    problem, kernel, num_correct_trials=5, measure_performance=False,
    device=torch.device("cuda:0"), backend="triton", precision=torch.float32,
)
answer = {"compiled": False, "correct": False, "metadata": "no result"}
if result is not None:
    answer = {"compiled": bool(result.compiled), "correct": bool(result.correctness)}
    answer["metadata"] = str({key: str(value)[:200] for key, value in result.metadata.items()})
print("\\n" + json.dumps(answer))
"""


def main() -> None:
    """Evaluate what OUT does not have yet, in an order without meaning."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("answers", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--samples", type=int, default=1, help="answers of a problem")
    parser.add_argument("--seconds", type=float, default=1e9, help="no answer is begun afterwards")
    arguments = parser.parse_args()
    root = Path(os.environ["KERNELBENCH_ROOT"])
    rows = [json.loads(line) for line in gzip.decompress(arguments.answers.read_bytes()).splitlines()]
    known = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    done = {(row["problem"], row["sample"]) for row in map(json.loads, known)}
    todo = [row for row in rows if row["sample"] < arguments.samples]
    todo = [row for row in todo if (row["problem"], row["sample"]) not in done]
    todo.sort(key=lambda row: (row["sample"], sha256_text(row["problem"])))
    deadline = time.monotonic() + arguments.seconds
    with arguments.out.open("a") as file, ThreadPoolExecutor(arguments.at_once) as pool:
        pending = {pool.submit(_evaluate, row, root, deadline): row for row in todo}
        again = []
        for number, future in enumerate(as_completed(pending), start=1):
            answer = future.result()
            if answer is None:
                continue
            if "out of memory" in str(answer).lower():
                again.append(pending[future])
                continue
            _keep(file, pending[future], answer, f"{number} of {len(todo)}")
        for row in again:
            answer = _evaluate(row, root, deadline)
            if answer is not None:
                _keep(file, row, answer, "alone")


def _keep(file: Any, row: dict[str, Any], answer: dict[str, Any], label: str) -> None:
    kept = {"problem": row["problem"], "sample": row["sample"], **answer}
    file.write(json.dumps(kept) + "\n")
    file.flush()
    print(
        label, {key: kept[key] for key in ("problem", "sample", "compiled", "correct", "seconds")}, flush=True
    )


def _evaluate(row: dict[str, Any], root: Path, deadline: float) -> dict[str, Any] | None:
    """Return KernelBench's verdict on one answer; None past the deadline."""
    if time.monotonic() > deadline:
        return None
    candidate = parse_completion(row["text"], row["end"])
    if not isinstance(candidate, Candidate):
        return {"compiled": False, "correct": False, "metadata": candidate.reason, "seconds": 0.0}
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join((str(root / "src"), environment.get("PYTHONPATH", "")))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        problem = root / "KernelBench" / (row["problem"].removeprefix("kernelbench/") + ".py")
        kernel = Path(folder) / "kernel.py"
        kernel.write_text(candidate.source)
        environment["TRITON_CACHE_DIR"] = folder
        command = [sys.executable, "-c", EVALUATOR, str(problem), str(kernel)]
        try:
            process = subprocess.run(
                command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return {"compiled": True, "correct": False, "metadata": "timed out", "seconds": TIMEOUT_S}
    seconds = round(time.monotonic() - began, 1)
    try:
        answer: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        answer = {"compiled": False, "correct": False, "metadata": process.stderr.strip()[-300:]}
    return answer | {"seconds": seconds}


if __name__ == "__main__":
    main()
