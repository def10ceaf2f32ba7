"""How long contexts take to come up on a host of several GPUs, when each process may open all of them or one.

    python benchmarks/contexts_by_gpu.py

Some processes a GPU wait until all have imported torch; then every one makes its first tensor. Only root can
keep other GPUs from a process.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

import torch
from machine import describe_machine

CHILD = """
import os, sys, time
os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "2"
import torch
from kernel_core.gym.gpu import keep_to_gpu
if sys.argv[1] == "one":
    keep_to_gpu(0)
print("ready", flush=True)
sys.stdin.readline()
started = time.monotonic()
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
print(time.monotonic() - started, flush=True)
sys.stdin.readline()
"""


def main() -> int:
    """Print the table."""
    count = torch.cuda.device_count()
    print(f"Machine: {describe_machine()}.\n")
    print("| a process may open | GPUs | processes a GPU | seconds, median | the slowest |")
    print("|---|---|---|---|---|")
    for can_open in ("all", "one"):
        for gpus, each in ((1, 1), (1, 4), (count, 1), (count, 4)):
            seconds = _bring_up(can_open, gpus, each)
            median, slowest = statistics.median(seconds), max(seconds)
            print(f"| {can_open} | {gpus} | {each} | {median:.2f} | {slowest:.2f} |", flush=True)
    return 0


def _bring_up(can_open: str, gpus: int, each: int) -> list[float]:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, can_open],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": str(gpu)},
        )
        for gpu in range(gpus)
        for _ in range(each)
    ]
    for child in children:
        _hear(child)
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    seconds = [float(_hear(child)) for child in children]
    for child in children:
        child.kill()
        child.wait()
    return seconds


def _hear(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


if __name__ == "__main__":
    sys.exit(main())
