"""Claim: how long a kernel takes depends on what the GPU did before, and the judge waits that out.

Three things that a call may find, each with the times of calls as the judge makes them (L2 flushed, device
events): a GPU that had nothing to do; memory that was just given back, which the driver clears; and inputs at
addresses that the process has never used, with contents that were just written.

    python benchmarks/timing_state.py [--write]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import torch
from device_timer import DeviceTimer
from machine import describe_machine

from kernel_core.gym.arena import lay_out
from kernel_core.gym.device_memory import DeviceArena
from kernel_core.gym.quiet import MemoryProbe

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "timing_state.md"
SHAPE = (128, 4096, 4095)
"""8.6 GB of float32, summed over its middle."""
REPEATS, CALLS = 6, 8


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the page to docs/results")
    arguments = parser.parse_args()
    timer = DeviceTimer()
    lines = ["# What a timed call finds", "", "    python benchmarks/timing_state.py --write", ""]
    lines += [f"Machine: {describe_machine()}. Times are medians of {REPEATS}, in milliseconds.", ""]
    for part in (_after_pauses, _after_frees, _at_new_addresses):
        lines += [*part(timer), ""]
    print("\n".join(lines))
    if arguments.write:
        RESULTS.write_text("\n".join(lines))


def _after_pauses(timer: DeviceTimer) -> list[str]:
    """The first call after a pause and some activity."""
    wide, square = torch.rand(SHAPE, device="cuda"), torch.randn(4096, 4096, device="cuda")
    operations = {"sum": lambda: wide.sum(1), "product": lambda: square @ square}
    lines = ["| operation | pause, ms | then busy for, ms | first call | fourth | again and again |"]
    lines.append("|---|---|---|---|---|---|")
    for name, operation in operations.items():
        steady = statistics.median(timer.call_ms(operation) for _ in range(40))
        for pause in (1, 5, 20, 100):
            for busy in (0, 2, 5, 15):
                calls = []
                for _ in range(REPEATS):
                    time.sleep(pause / 1e3)
                    timer.spin(busy)
                    calls.append([timer.call_ms(operation) for _ in range(4)])
                first, fourth = (statistics.median(one[index] for one in calls) for index in (0, 3))
                lines.append(f"| {name} | {pause} | {busy} | {first:.3f} | {fourth:.3f} | {steady:.3f} |")
    return lines


def _after_frees(timer: DeviceTimer) -> list[str]:
    """A read of memory of its own, by the time since 8.6 GB were given back."""
    probe = MemoryProbe()
    for _ in range(20):
        probe.wait()
    lines = ["| since 8.6 GB were given back, ms | reading and writing half a gigabyte |", "|---|---|"]
    lines.append(f"| (long ago) | {probe.calm_ms:.3f} |")
    seen: list[list[tuple[float, float]]] = []
    for _ in range(REPEATS):
        torch.rand(SHAPE, device="cuda")
        torch.cuda.empty_cache()
        freed, row = time.monotonic(), []
        while (since := 1e3 * (time.monotonic() - freed)) < 60:
            row.append((since, probe.read_ms()))
        seen.append(row)
    for low, high in ((0, 5), (5, 10), (10, 20), (20, 30), (30, 40), (40, 60)):
        times = [one for row in seen for since, one in row if low <= since < high]
        lines.append(f"| {low} to {high} | {statistics.median(times):.3f} |")
    return lines


def _at_new_addresses(timer: DeviceTimer) -> list[str]:
    """Calls on memory that is mapped afresh, or also written afresh, each time."""
    slots, num_bytes = lay_out([(SHAPE, torch.float32)])
    arena = DeviceArena.create(num_bytes)
    held = arena.tensor(slots[0])
    held.uniform_()
    timer.spin(200)
    lines = ["| sum over memory | first call | second call |", "|---|---|---|"]
    same = [timer.call_ms(lambda: held.sum(1)) for _ in range(CALLS)]
    lines.append(f"| that it read before | {statistics.median(same):.3f} | |")
    for is_written in (False, True):
        calls = []
        for _ in range(REPEATS):
            if is_written:
                held.uniform_()
            mapped = DeviceArena.open(os.dup(arena.descriptor), num_bytes)
            tensor = mapped.tensor(slots[0])
            timer.spin(15)
            calls.append([timer.call_ms(lambda tensor=tensor: tensor.sum(1)) for _ in range(2)])  # type: ignore[misc]
            del tensor
            mapped.close(reuse_address=False)
        first, second = (statistics.median(one[index] for one in calls) for index in (0, 1))
        name = "at new addresses, written anew" if is_written else "at new addresses"
        lines.append(f"| {name} | {first:.3f} | {second:.3f} |")
    return lines


if __name__ == "__main__":
    main()
