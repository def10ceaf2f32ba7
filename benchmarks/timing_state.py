"""Claim: what a call finds (a GPU that rested, memory that was just given back, new addresses) changes its
time by at most 1 %, if the host has a head start; without one it is the host that is slow after a pause.

Three things that a timed call may find, each with the times of calls as the judge makes them (L2 flushed,
device events), with its head start and without: a GPU, and a host, that had nothing to do; memory that was
just given back, which the driver may clear; and inputs at addresses that the process has never used, with
contents that were just written.

    python benchmarks/timing_state.py [--write]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from device_timer import DeviceTimer
from machine import describe_machine

from kernel_core.gym.channel.cuda_arena import DeviceArena
from kernel_core.gym.channel.shared_arena import lay_out

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "timing_state.md"
SHAPE = (128, 4096, 4095)
"""8.6 GB of float32, summed over its middle."""
REPEATS, CALLS = 6, 8


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the page to docs/results")
    arguments = parser.parse_args()
    timers = DeviceTimer(head_start=False), DeviceTimer()
    lines = ["# What a timed call finds", "", "    python benchmarks/timing_state.py --write", ""]
    lines += [
        f"Machine: {describe_machine()}. Times are medians of {REPEATS}, in milliseconds, without the host's "
        "head start / with it.",
        "",
    ]
    for part in (_after_pauses, _after_frees, _at_new_addresses):
        lines += [*part(timers), ""]
    print("\n".join(lines))
    if arguments.write:
        RESULTS.write_text("\n".join(lines))


Timers = tuple[DeviceTimer, DeviceTimer]


def _both(timers: Timers, measure: Callable[[DeviceTimer], float]) -> str:
    return " / ".join(f"{measure(timer):.3f}" for timer in timers)


def _after_pauses(timers: Timers) -> list[str]:
    """The first call after a pause and some activity."""
    wide, square = torch.rand(SHAPE, device="cuda"), torch.randn(4096, 4096, device="cuda")
    operations = {"sum": lambda: wide.sum(1), "product": lambda: square @ square}
    lines = ["| operation | pause, ms | then busy for, ms | first call | again and again |"]
    lines.append("|---|---|---|---|---|")
    for name, operation in operations.items():
        steady = _both(timers, lambda one, call=operation: _steady(one, call))  # type: ignore[misc]
        for pause, busy in ((1, 0), (20, 0), (20, 5), (20, 15), (100, 0), (100, 15)):
            first = _both(
                timers,
                lambda one, call=operation, pause=pause, busy=busy: _first(one, call, pause, busy),  # type: ignore[misc]
            )
            lines.append(f"| {name} | {pause} | {busy} | {first} | {steady} |")
    return lines


def _steady(timer: DeviceTimer, operation: Callable[[], object]) -> float:
    return statistics.median(timer.call_ms(operation) for _ in range(20))


def _first(timer: DeviceTimer, operation: Callable[[], object], pause_ms: float, busy_ms: float) -> float:
    calls = []
    for _ in range(REPEATS):
        time.sleep(pause_ms / 1e3)
        timer.spin(busy_ms)
        calls.append(timer.call_ms(operation))
    return statistics.median(calls)


def _after_frees(timers: Timers) -> list[str]:
    """A read of memory of its own, by the time since 8.6 GB were given back."""
    memory = torch.zeros(1 << 29, device="cuda")
    operations = {"sum": memory.sum, "addition": lambda: memory.add_(1)}
    windows = ((0, 5), (5, 10), (10, 20), (20, 30), (30, 40), (40, 60))
    heads = " | ".join(f"{low} to {high} ms" for low, high in windows)
    lines = [f"| over 2.1 GB, since 8.6 GB were given back | {heads} | long ago |"]
    lines.append("|---" * (len(windows) + 2) + "|")
    for name, operation in operations.items():
        found = [_times_after_a_free(timer, operation, windows) for timer in timers]
        cells = [f"{one:.3f} / {other:.3f}" for one, other in zip(*found, strict=True)]
        steady = _both(timers, lambda one, call=operation: _steady(one, call))  # type: ignore[misc]
        lines.append(f"| {name} | {' | '.join(cells)} | {steady} |")
    return lines


def _times_after_a_free(
    timer: DeviceTimer, operation: Callable[[], object], windows: tuple[tuple[int, int], ...]
) -> list[float]:
    seen: list[tuple[float, float]] = []
    for _ in range(REPEATS):
        torch.rand(SHAPE, device="cuda")
        torch.cuda.empty_cache()
        freed = time.monotonic()
        while (since := 1e3 * (time.monotonic() - freed)) < windows[-1][1]:
            seen.append((since, timer.call_ms(operation)))
    return [
        statistics.median(call_ms for since, call_ms in seen if low <= since < high) for low, high in windows
    ]


def _at_new_addresses(timers: Timers) -> list[str]:
    """Calls on memory that is mapped afresh, or also written afresh, each time."""
    slots, num_bytes = lay_out([(SHAPE, torch.float32)])
    arena = DeviceArena.create(num_bytes)
    held = arena.tensor(slots[0])
    held.uniform_()
    timers[0].spin(200)

    def fresh(timer: DeviceTimer, is_written: bool) -> float:
        calls = []
        for _ in range(REPEATS):
            if is_written:
                held.uniform_()
            mapped = DeviceArena.open(os.dup(arena.descriptor), num_bytes)
            tensor = mapped.tensor(slots[0])
            calls.append(timer.call_ms(lambda tensor=tensor: tensor.sum(1)))  # type: ignore[misc]
            del tensor
            mapped.close(reuse_address=False)
        return statistics.median(calls)

    same = _both(timers, lambda one: _steady(one, lambda: held.sum(1)))
    return [
        "| sum over memory | first call |",
        "|---|---|",
        f"| that it read before | {same} |",
        f"| at new addresses | {_both(timers, lambda one: fresh(one, False))} |",
        f"| at new addresses, written anew | {_both(timers, lambda one: fresh(one, True))} |",
    ]


if __name__ == "__main__":
    main()
