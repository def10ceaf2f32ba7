"""Claim: kernels that `torch.compile` writes, rewritten and judged, teach operators that no generator draws.

    python benchmarks/compiled_kernels.py FOLDER OUT      # FOLDER: problems, such as `dojo harvest` leaves

Works without a GPU. `OUT/exemplars.jsonl` gets each kernel that the judge finds correct,
`OUT/outcomes.jsonl` a line a problem; the same command goes on where it stopped. Problems that give
KernelBench away are left out (KERNELBENCH_ROOT: by all rules, else by sizes). A table of reasons by family
comes last.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from machine import describe_machine

from kernel_core.compiler_teacher.capture import Captured
from kernel_core.compiler_teacher.exemplars import taught_exemplars
from kernel_core.compiler_teacher.pool import captured
from kernel_core.config import GymConfig
from kernel_core.corpus.kernelbench_leaks import leak_rule
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.load import load_folder
from kernel_core.records import Problem
from kernel_core.store import Store


def main() -> None:
    """Kernels for a folder of problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=2, help="that compile")
    parser.add_argument("--judges", type=int, default=1)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    outcomes = arguments.out / "outcomes.jsonl"
    store = Store(str(arguments.out))
    known = {row["problem"] for row in store.lines("outcomes.jsonl")}
    leak = leak_rule()
    problems = [one for one in load_folder(arguments.folder) if one.id not in known and leak(one) is None]
    with (
        open_gym(GymConfig(device="cpu", workers=arguments.judges)) as gym,
        outcomes.open("a") as said,
        (arguments.out / "exemplars.jsonl").open("a") as kept,
    ):
        for problem, found in taught_exemplars(_found(problems, arguments.processes), gym):
            reason = found if isinstance(found, str) else "correct"
            if not isinstance(found, str):
                kept.write(found.model_dump_json() + "\n")
                kept.flush()
            said.write(json.dumps({"problem": problem.id, "family": problem.family, "reason": reason}) + "\n")
            said.flush()
    print(describe_machine())
    frame = pd.DataFrame(store.lines("outcomes.jsonl"))
    print(pd.crosstab(frame["reason"], frame["family"], margins=True).to_string())


def _found(problems: Sequence[Problem], processes: int) -> Iterator[tuple[Problem, Captured | str]]:
    for position, one in captured(problems, processes):
        yield problems[position], one


if __name__ == "__main__":
    main()
