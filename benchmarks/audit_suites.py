"""Claim: no problem of our own suite, and none of the generators' families, pays for an answer without work.

Audits both as `dojo audit` does, and writes what each family of inputs lets pass to docs/results/audit.md.
Exits with 1 if a problem accepts something under its own inputs.

    python benchmarks/audit_suites.py --write
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from machine import describe_machine

from kernel_core.config import ProblemsConfig
from kernel_core.gym.judge.problem_audit import CHEATS, ProblemAudit, audit_problem
from kernel_core.gym.oracle.input_families import DRAWS
from kernel_core.problems.generators import ENDLESS_SUITES
from kernel_core.problems.load import load_problems

PAGE = Path(__file__).parents[1] / "docs" / "results" / "audit.md"
COMMAND = "python benchmarks/audit_suites.py --write"


def main() -> int:
    """Audit, print the tables, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--generated", type=int, default=120, help="problems drawn from each generator")
    parser.add_argument("--write", action="store_true", help=f"write the tables to {PAGE.name}")
    arguments = parser.parse_args()
    started = time.monotonic()
    parts, num_weak = [], 0
    for suite, limit in (("dojo", None), *((name, arguments.generated) for name in ENDLESS_SUITES)):
        problems = load_problems(ProblemsConfig(suite=suite, split="all", limit=limit))
        audits = [audit_problem(problem) for problem in problems]
        weak = [one for one in audits if one.draws[0].accepted]
        num_weak += len(weak)
        parts += [f"## {suite}: {len(audits)} problems", "", *_table(audits), "", *_names(weak)]
    text = "\n".join(parts)
    print(text)
    if arguments.write:
        seconds = time.monotonic() - started
        PAGE.write_text(
            "# Which answers without work our problems accept\n\n"
            "Counts of problems that accept an answer without work, by input family "
            "(`docs/judge/correctness.md`).\n"
            "`usable`: the reference runs and gives finite numbers wherever it does for its own.\n\n"
            f"    {COMMAND}\n\n{text}\nMachine: {describe_machine()}; {seconds:.0f} s.\n"
        )
    return 1 if num_weak else 0


def _table(audits: list[ProblemAudit]) -> list[str]:
    columns = ("usable", *CHEATS)
    lines = ["| inputs | " + " | ".join(columns) + " |", "|" + "---|" * (len(columns) + 1)]
    for position, draw in enumerate(DRAWS):
        found = [one.draws[position] for one in audits]
        counts = Counter(cheat for one in found for cheat in one.accepted)
        cells = [sum(one.usable for one in found), *(counts[cheat] for cheat in CHEATS)]
        lines.append(f"| `{draw}` | " + " | ".join(str(cell) for cell in cells) + " |")
    return lines


def _names(weak: list[ProblemAudit]) -> list[str]:
    if not weak:
        return ["No problem accepts anything under its own inputs.", ""]
    return [*(f"- `{one.problem_id}` accepts {', '.join(one.draws[0].accepted)}" for one in weak), ""]


if __name__ == "__main__":
    sys.exit(main())
