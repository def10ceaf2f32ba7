"""What judges ask of a GPU's driver for each candidate, with one GPU of a host at work and with more.

The driver has locks for all GPUs of a host: calls that take longer where others are at work are what judges
wait for there. Counted by `driver_calls.c`, which is preloaded into a gym's processes, for the candidates of
`judge_scaling.py`. Classes and commands of the resource manager are numbers of its public headers.

    KERNELBENCH_ROOT=../KernelBench python benchmarks/driver_calls.py --gpus 1 2 --write
"""

from __future__ import annotations

import argparse
import os
import resource
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from judge_scaling import judge_all, scaling_pairs
from kernelbench_pairs import Pair, kernelbench_root
from machine import describe_machine
from preload import build_preload

RESULTS = Path(__file__).parents[1] / "docs" / "results"
COMMAND = "KERNELBENCH_ROOT=../KernelBench python benchmarks/driver_calls.py --gpus {gpus} --write"
SOURCE = Path(__file__).with_suffix(".c")
ROW = struct.Struct("QQQ")
NUM_ROWS = 4096
"""As in the C file."""
ALLOCATE = 0x462B
CALLS = {
    0x1B: "unified memory: register a queue",
    0x19: "unified memory: register an address space",
    0x21: "unified memory: map",
    0x22: "unified memory: free",
    0x25: "unified memory: register a GPU",
    0x49: "unified memory: create a range",
    0x4627: "allocate memory that the host sees",
    0x4629: "free",
    0x462A: "control",
    ALLOCATE: "allocate",
    0x464E: "map for the host",
    0x464F: "unmap from the host",
    0x46C9: "bind a descriptor",
}
OBJECTS = {
    0x3E: "memory of the host",
    0x40: "memory of the GPU",
    0x79: "event",
    0xF8: "memory that others may import",
    0xA06C: "group of queues",
    0xC86F: "queue",
    0xC8B5: "copy engine",
}
"""What is allocated."""
COMMANDS = {
    0xD01: "kind of address space",
    0x3D08: "what a descriptor holds",
    0x3D0C: "import from a descriptor",
    0x503C0104: "register for other devices",
    0x503C0105: "unregister for other devices",
    0x80170D: "list of queues",
    0x906F0101: "engine of a queue",
    0x2080200A: "raise the clocks",
}
"""What is asked of an object."""


@dataclass(frozen=True)
class Counted:
    """Of one run; a call is its number and what it asks for, with how often it came and its milliseconds."""

    candidates: int
    wall_s: float
    user_s: float
    kernel_s: float
    calls: dict[tuple[int, int], tuple[int, float]]

    @property
    def calls_at_once(self) -> float:
        """How many are under way, on average."""
        return sum(ms for _, ms in self.calls.values()) / 1e3 / self.wall_s


def main() -> None:
    """Judge with each number of GPUs; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, torch.cuda.device_count()])
    parser.add_argument("--warps", type=int, nargs="*", default=[8], help="of the groups' further kernels")
    parser.add_argument("--top", type=int, default=20, help="rows of the table")
    parser.add_argument("--write", action="store_true", help="write the page to docs/results")
    arguments = parser.parse_args()
    pairs = scaling_pairs(kernelbench_root(), arguments.warps)
    with tempfile.TemporaryDirectory() as folder:
        library = build_preload(SOURCE, Path(folder))
        runs = {gpus: _count(pairs, gpus, library) for gpus in sorted(arguments.gpus)}
    lines = _page(runs, arguments.top, COMMAND.format(gpus=" ".join(map(str, arguments.gpus))))
    print("\n".join(lines))
    if arguments.write:
        (RESULTS / "driver_calls.md").write_text("\n".join(lines) + "\n")


def _count(pairs: list[Pair], gpus: int, library: Path) -> Counted:
    table = library.with_name(f"table_{gpus}")
    table.write_bytes(bytes(NUM_ROWS * ROW.size))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Only processes that start from here on have it, which are the gym's.
    os.environ |= {"LD_PRELOAD": str(library), "DRIVER_CALLS": str(table)}
    try:
        seconds = judge_all(pairs, gpus)["seconds"]
    finally:
        del os.environ["LD_PRELOAD"], os.environ["DRIVER_CALLS"]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Counted(
        len(pairs),
        seconds,
        after.ru_utime - before.ru_utime,
        after.ru_stime - before.ru_stime,
        _read(table),
    )


def _read(table: Path) -> dict[tuple[int, int], tuple[int, float]]:
    """A row's kind is the call's number plus one, then what it asks for."""
    rows = ROW.iter_unpack(table.read_bytes())
    return {
        ((kind >> 32) - 1, kind & 0xFFFFFFFF): (calls, nanoseconds / 1e6)
        for kind, calls, nanoseconds in rows
        if calls
    }


def _page(runs: dict[int, Counted], top: int, command: str) -> list[str]:
    """Kinds are in the order of the time they take with the most GPUs."""
    names = {gpus: f"{gpus} GPU{'s' * (gpus > 1)}" for gpus in runs}
    longest = runs[max(runs)].calls
    kinds = sorted(longest, key=lambda kind: -longest[kind][1])
    heads = [f"{head}, {name}" for name in names.values() for head in ("calls", "ms", "ms a call")]
    return [
        "# What a candidate asks of the driver",
        "",
        f"    {command}",
        "",
        f"Machine: {describe_machine()}.",
        "",
        "| | evaluations an hour | processors at work in programs | in the kernel | calls under way |",
        "|---|---|---|---|---|",
        *(
            f"| {names[gpus]} | {3600 * run.candidates / run.wall_s:,.0f} "
            f"| {run.user_s / run.wall_s:.1f} | {run.kernel_s / run.wall_s:.1f} | {run.calls_at_once:.1f} |"
            for gpus, run in runs.items()
        ),
        "",
        "A candidate's share of all calls, by kind; those that took longest in all:",
        "",
        f"| | {' | '.join(heads)} |",
        "|---" * (1 + len(heads)) + "|",
        *(_row(_name(*kind), [_of(run, [kind]) for run in runs.values()]) for kind in kinds[:top]),
        _row("all", [_of(run, list(run.calls)) for run in runs.values()]),
    ]


def _name(number: int, what: int) -> str:
    """In words, where there are some; see NVIDIA's open-gpu-kernel-modules for the others."""
    call = CALLS.get(number, hex(number))
    named = (OBJECTS if number == ALLOCATE else COMMANDS).get(what, f"{what:#x}")
    return f"{call}: {named}" if what else call


def _row(name: str, cells: list[tuple[float, float, float]]) -> str:
    return (
        " | ".join((f"| {name}", *(f"{calls:.1f} | {ms:.1f} | {each:.3f}" for calls, ms, each in cells)))
        + " |"
    )


def _of(run: Counted, kinds: list[tuple[int, int]]) -> tuple[float, float, float]:
    """Calls and milliseconds a candidate, and milliseconds a call."""
    calls = sum(run.calls.get(kind, (0, 0.0))[0] for kind in kinds)
    took_ms = sum(run.calls.get(kind, (0, 0.0))[1] for kind in kinds)
    return calls / run.candidates, took_ms / run.candidates, took_ms / calls if calls else 0.0


if __name__ == "__main__":
    main()
