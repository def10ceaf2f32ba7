"""Claim: the judge accepts honest and refuses wrong kernels for problems that are not in this repository.

Judges the kernels under `tests/fixtures/kernelbench/` for KernelBench's own problems, read from the checkout
that KERNELBENCH_ROOT names, through `dojo judge`; on a CPU with sizes shrunk by `--set`. Exits with 1 if an
honest kernel is refused or a wrong one accepted.

    KERNELBENCH_ROOT=../KernelBench python benchmarks/kernelbench_problems.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench_pairs import KERNELS, kernelbench_root
from machine import describe_machine
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parents[1] / "docs" / "results"
COMMAND = "KERNELBENCH_ROOT=../KernelBench python benchmarks/kernelbench_problems.py"

_ELEMENTWISE = {"batch_size": 5, "dim": 300}
_ROWS = {"batch_size": 6, "dim": 1500}
_REDUCED = {"batch_size": 2, "dim1": 50, "dim2": 70}
_LINEAR = {"batch_size": 40, "in_features": 72, "out_features": 80}
CPU_SIZES: dict[str, dict[str, float]] = {
    "1_1": {"N": 72},
    "1_5": {"M": 40, "N": 70},
    **{f"1_{number}": _ELEMENTWISE for number in (19, 20, 21, 22, 25, 26, 27, 29, 30, 31, 88)},
    **{f"1_{number}": _ROWS for number in (23, 24, 38, 39)},
    "1_36": {"batch_size": 2, "features": 12, "dim1": 9, "dim2": 10},
    "1_40": {"batch_size": 3, "features": 5, "dim1": 16, "dim2": 17},
    "1_47": _REDUCED,
    "1_48": _REDUCED,
    "1_49": {"batch_size": 2, "dim1": 4, "dim2": 70},
    "1_94": {"batch_size": 4},
    "1_96": {"batch_size": 4},
    # At small sizes the subtraction leaves nothing positive, and any zeros would be right.
    "2_9": {**_LINEAR, "subtract_value": 0.1},
    **{f"2_{number}": _LINEAR for number in (12, 29, 40, 59)},
    # At its own scale no linear output comes near the limits of HardTanh, and its place would not matter.
    "2_53": {**_LINEAR, "scaling_factor": 20.0},
    "2_14": {"batch_size": 40, "input_size": 72, "hidden_size": 80},
    "2_37": {**_LINEAR, "num_groups": 8},
    "2_56": {"batch_size": 40, "input_size": 72, "hidden_size": 80},
}
"""Level and number of each problem, and its constants on a CPU."""


@dataclass(frozen=True)
class Judged:
    """One kernel file and what `dojo judge` said of it."""

    problem: str
    kind: str
    answer: dict[str, Any]

    @property
    def right(self) -> bool:
        """Honest kernels are `correct`; wrong ones are not."""
        return (self.answer["verdict"] == "correct") == (self.kind == "honest")


def main() -> int:
    """Judge all pairs, print the table, write the page; the exit code says whether all were right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="*", default=sorted(CPU_SIZES, key=_order), metavar="LEVEL_NUMBER")
    parser.add_argument("--jobs", type=int, default=2, help="judges at once")
    parser.add_argument("--seed", type=int, default=0, help="of the secret inputs")
    parser.add_argument("--write", action="store_true", help="write the table to docs/results")
    arguments = parser.parse_args()
    root = kernelbench_root()
    started = time.monotonic()
    pairs = [(key, kind) for key in arguments.only for kind in ("honest", "wrong")]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        judged = list(pool.map(lambda pair: _judge(root, *pair, arguments), pairs))
    seconds = time.monotonic() - started
    _show(judged)
    faults = [result for result in judged if not result.right]
    right = Counter(result.kind for result in judged if result.right)
    summary = (
        f"{len(judged)} kernels for {len(judged) // 2} problems in {seconds:.0f} s: "
        f"{right['honest']} of {len(judged) // 2} honest ones accepted, "
        f"{right['wrong']} of {len(judged) // 2} wrong ones refused."
    )
    print(summary)
    if arguments.write:
        _write(judged, summary, arguments.device)
    return 1 if faults else 0


def _judge(root: Path, key: str, kind: str, arguments: argparse.Namespace) -> Judged:
    level, number = key.split("_")
    problem = next((root / "KernelBench" / f"level{level}").glob(f"{number}_*.py"))
    sizes = CPU_SIZES[key] if arguments.device == "cpu" else {}
    command = [sys.executable, "-m", "flows.cli", "judge", "--json", "--device", arguments.device]
    command += ["--problem", str(problem), "--kernel", str(KERNELS / f"{key}_{kind}.py")]
    command += ["--seed", str(arguments.seed)]
    for name, value in sizes.items():
        command += ["--set", f"{name}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} left with {done.returncode}: {done.stderr.strip()[-500:]}")
    return Judged(f"L{level} {problem.stem}", kind, json.loads(done.stdout.splitlines()[-1]))


def _cells(result: Judged) -> list[str]:
    answer = result.answer
    predicted, measured = answer["predicted_speedup"], answer["speedup"]
    return [
        result.problem,
        result.kind,
        answer["verdict"],
        f"{answer['trials_passed']}/{answer['trials']}",
        "" if measured is None else f"{measured:.2f}",
        "" if predicted is None else f"{predicted:.2f}",
        f"{answer['seconds']:.1f}",
        "yes" if result.right else "NO",
    ]


_COLUMNS = ("problem", "kernel", "verdict", "trials", "speed-up", "predicted", "judge s", "right")


def _show(judged: list[Judged]) -> None:
    table = Table(*_COLUMNS, title="KernelBench's own problems")
    for result in judged:
        table.add_row(*_cells(result), style=None if result.right else "bold red")
    Console(width=120).print(table)


def _write(judged: list[Judged], summary: str, device: str) -> None:
    lines = [
        "# The judge on KernelBench's own problems",
        "",
        "Honest and wrong kernels (`tests/fixtures/kernelbench/`) for problems outside this repository.",
        f"Device: {device}. Speed-ups are measured on a GPU only; predicted ones come from counted traffic,",
        "for the problem at its own size.",
        "",
        f"    {COMMAND} --write" + ("" if device == "cpu" else f" --device {device}"),
        "",
        f"{summary}",
        "",
        f"Machine: {describe_machine()}.",
        "",
        *(f"- not right: {', '.join(_cells(result))}" for result in judged if not result.right),
    ]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"kernelbench_{device}.md").write_text("\n".join(lines) + "\n")


def _order(key: str) -> tuple[int, int]:
    level, number = key.split("_")
    return int(level), int(number)


if __name__ == "__main__":
    sys.exit(main())
