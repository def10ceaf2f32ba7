"""What each of a judge's own operations on large inputs takes of a GPU, and of its memory.

For some of KernelBench's problems, mostly of several gigabytes: drawing inputs, making what is expected,
handing it over, comparing. Candidates wait for these one after the other, because draws use torch's global
generators. Each is done three times; the first time torch also takes its memory from the driver.

    KERNELBENCH_ROOT=../KernelBench python benchmarks/judge_operations.py --write
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from kernelbench_pairs import kernelbench_pairs, kernelbench_root
from machine import describe_machine

from kernel_core.gym.channel.shared_arena import arena_kind
from kernel_core.gym.numerics.compare import compare_values
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial
from kernel_core.gym.timing.timed_batch import arena_bytes
from kernel_core.gym.workers.payload import changed_inputs, deliver, refill
from kernel_core.problems.load import load_file

RESULTS = Path(__file__).parents[1] / "docs" / "results"
COMMAND = "KERNELBENCH_ROOT=../KernelBench python benchmarks/judge_operations.py --write"
PROBLEMS = ("1_19", "1_36", "1_38", "1_47", "2_37")
REPEATS = 3


class Times:
    """Milliseconds of operations by name, and the most memory that they took beside what was there."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}

    def of(self, name: str, operation: Callable[[], Any]) -> Any:
        """What it gives; what it gave before is forgotten first."""
        times, result = [], None
        for _ in range(REPEATS):
            result = None
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before, started = torch.cuda.memory_allocated(), time.perf_counter()
            result = operation()
            torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - started))
        most = (torch.cuda.max_memory_allocated() - before) / 2**30
        self.rows[name] = f"{times[0]:.1f}, then {min(times[1:]):.1f} ({most:.1f} GiB)"
        return result


def main() -> None:
    """Time all for each problem; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table to docs/results")
    arguments = parser.parse_args()
    problems = {pair.key: pair.problem for pair in kernelbench_pairs(kernelbench_root())}
    columns = {}
    for key in PROBLEMS:
        torch.cuda.empty_cache()
        columns[problems[key].stem] = _time_all(problems[key])
    names = list(next(iter(columns.values())))
    lines = [
        "# The judge's own operations",
        "",
        f"    {COMMAND}",
        "",
        f"Machine: {describe_machine()}.",
        "",
        f"Milliseconds of the first and of the best of {REPEATS - 1} further times, and the most memory that "
        "was taken beside what was there.",
        "",
        f"| | {' | '.join(columns)} |",
        f"|---|{'---|' * len(columns)}",
        *(f"| {name} | {' | '.join(rows[name] for rows in columns.values())} |" for name in names),
    ]
    print("\n".join(lines))
    if arguments.write:
        (RESULTS / "judge_operations.md").write_text("\n".join(lines) + "\n")


def _time_all(problem: Path) -> dict[str, str]:
    times = Times()
    reference = Reference(load_file(problem), {}, "cuda")
    own = times.of("a trial, by float64", lambda: reference.trial(1, "own"))
    times.of("a hostile trial, by float64", lambda: reference.trial(2, "mixed"))
    times.of("a trial like one that is known", lambda: reference.trial_like(own, 3))
    times.of("own inputs", lambda: reference.draw(4, "own"))
    times.of("hostile inputs", lambda: reference.draw(4, "mixed"))
    with contextlib.closing(arena_kind("cuda").create(arena_bytes(own))) as arena:
        _time_handing_over(times, reference, own, arena)
    return times.rows


def _time_handing_over(times: Times, reference: Reference, own: Trial, arena: Any) -> None:
    delivery = times.of("inputs handed over", lambda: deliver(reference, own, arena=arena))
    times.of("inputs laid out anew", lambda: refill(delivery, lambda: reference.inputs_of(own), "cuda"))
    times.of("inputs looked at for changes", lambda: changed_inputs(delivery))
    times.of("outputs poisoned", lambda: arena.poison(delivery.output_slots))
    output, [wanted] = arena.tensor(delivery.output_slots[0]), own.expected
    output.copy_(wanted.value)
    times.of("right outputs compared", lambda: compare_values(output, wanted))
    output.mul_(1.2)
    times.of("wrong outputs compared", lambda: compare_values(output, wanted))


if __name__ == "__main__":
    main()
