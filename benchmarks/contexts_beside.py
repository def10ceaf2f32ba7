"""Claim: GPU contexts that come up or end beside a kernel that is timed do not change its time.

Times four operations as the judge times kernels (L2 flushed, device events, the median of a round of calls)
while nothing else happens, beside idle contexts, and while other processes bring contexts up and are killed.

    python benchmarks/contexts_beside.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
from collections.abc import Callable

import torch
from device_timer import DeviceTimer
from machine import describe_machine

ROUNDS = 12
CHILD = "import sys, torch; torch.zeros(1, device='cuda'); print('up', flush=True); sys.stdin.readline()"


def main() -> int:
    """Print the table."""
    small, large = torch.randn(4096, 4096, device="cuda"), torch.randn(112, 64, 512, 256, device="cuda")
    wide = torch.randn(8192, 8192, device="cuda")
    operations: dict[str, tuple[Callable[[], object], int]] = {
        "softmax": (lambda: torch.softmax(small, -1), 50),
        "relu": (lambda: torch.relu(large), 15),
        "product": (lambda: small @ small, 15),
        "long product": (lambda: wide @ wide, 8),
    }
    print(f"Machine: {describe_machine()}.\n")
    print("| beside | operation | median ms | variation of medians | largest difference |")
    print("|---|---|---|---|---|")
    _show("nothing", operations)
    idle = [_start() for _ in range(8)]
    _show("8 idle contexts", operations)
    _end(idle)
    for count in (1, 4):
        over = threading.Event()
        thread = threading.Thread(target=_come_and_go, args=(count, over))
        thread.start()
        _show(f"{count} at a time that come and go", operations)
        over.set()
        thread.join()
    return 0


def _show(beside: str, operations: dict[str, tuple[Callable[[], object], int]]) -> None:
    for name, (operation, calls) in operations.items():
        _round(operation, 10)
        medians = [_round(operation, calls) for _ in range(ROUNDS)]
        middle = statistics.median(medians)
        variation = statistics.pstdev(medians) / statistics.fmean(medians)
        spread = (max(medians) - min(medians)) / min(medians)
        print(
            f"| {beside} | {name} | {middle:.4f} | {100 * variation:.2f} % | {100 * spread:.2f} % |",
            flush=True,
        )


def _round(operation: Callable[[], object], calls: int) -> float:
    timer = DeviceTimer()
    return statistics.median(timer.call_ms(operation) for _ in range(calls))


def _start() -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


def _end(children: list[subprocess.Popen[str]]) -> None:
    for child in children:
        child.kill()
        child.wait()


def _come_and_go(count: int, over: threading.Event) -> None:
    while not over.is_set():
        _end([_start() for _ in range(count)])


if __name__ == "__main__":
    sys.exit(main())
