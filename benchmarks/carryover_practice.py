"""Claim: RL learns more from problems of which a policy solves some and fails some.

    python benchmarks/carryover_practice.py pool --problems 440 --folder POOL
    python benchmarks/carryover.py answer --taught COLD_START --suite POOL --samples 4 --limit 999 --answers A
    python benchmarks/carryover.py judge --suite POOL --limit 999 --answers A --judge-device cpu --judged J
    python benchmarks/carryover_practice.py keep --pool POOL --judged J --folder PRACTICE
    python benchmarks/carryover_arms.py --arm rl --suite PRACTICE --model COLD_START --work W

`pool` draws problems of at least `--operators` different operators, with another seed than the cold start's:
chains, or with `--families` others.
`keep` copies the problems of which some judged answers are right and some are not: only those teach a
group anything at first.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from carryover import CHAINS, read_rows

from kernel_core.interop.kernelbench import directives
from kernel_core.problems.modules.generate import generate_modules


def main() -> None:
    """One of the stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stage", choices=("pool", "keep"))
    parser.add_argument("--folder", type=Path, required=True, help="what the problems are written into")
    parser.add_argument("--problems", type=int, default=440)
    parser.add_argument(
        "--families", nargs="+", default=list(CHAINS), help="of the suite `modules`, for `pool`"
    )
    parser.add_argument("--operators", type=int, default=5, help="the fewest different ones of a problem")
    parser.add_argument("--seed", type=int, default=777)
    parser.add_argument("--pool", type=Path, help="folder of `pool`, for `keep`")
    parser.add_argument("--judged", type=Path, help="verdicts on answers to it, for `keep`")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    {"pool": _pool, "keep": _keep}[arguments.stage](arguments)


def _pool(arguments: argparse.Namespace) -> None:
    """Problems of many operators, in the order drawn."""
    count, found = 3 * arguments.problems, []
    while len(found) < arguments.problems:
        made = [one.problem for one in generate_modules("train", count, arguments.seed, arguments.families)]
        # A tag is the split, the others are operators.
        found = [problem for problem in made if len(problem.tags) > arguments.operators]
        count *= 2
    for problem in found[: arguments.problems]:
        text = directives(problem) + problem.source
        (arguments.folder / f"{problem.name}.py").write_text(text, encoding="utf-8")
    print(f"{min(len(found), arguments.problems)} of {len(made)} problems have so many operators")


def _keep(arguments: argparse.Namespace) -> None:
    """Problems with right and wrong answers."""
    right: dict[str, list[bool]] = defaultdict(list)
    for row in read_rows(arguments.judged):
        right[row["problem"].rpartition("/")[2]].append(row["verdict"] == "correct")
    kept = [name for name, verdicts in right.items() if 0 < sum(verdicts) < len(verdicts)]
    for name in kept:
        (arguments.folder / f"{name}.py").write_bytes((arguments.pool / f"{name}.py").read_bytes())
    shares = [sum(verdicts) / len(verdicts) for verdicts in right.values()]
    print(f"{len(kept)} of {len(right)} problems kept; {sum(shares) / len(shares):.1%} of answers are right")


if __name__ == "__main__":
    main()
