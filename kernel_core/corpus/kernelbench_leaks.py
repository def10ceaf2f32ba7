"""Nothing of KernelBench in training: no text, no near duplicate of one, and none of its tuples of sizes.

These rules hold for problems that are drawn, harvested or collected, whatever suites an ingest names. They
let the same operator at other sizes pass: a policy has to learn operators.
`decontaminate` asks more of corpora.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from kernel_core.corpus.normalise import NotPython, reference_hash
from kernel_core.corpus.shingles import Shingles, code_tokens, jaccard, shingles_of
from kernel_core.errors import NotAProblem
from kernel_core.problems.evaluation_sizes import has_evaluation_sizes, size_tuple
from kernel_core.problems.load import KERNELBENCH_LEVELS, load_kernelbench
from kernel_core.problems.source import parse_problem
from kernel_core.records import Problem
from kernel_core.store import digest_of

NEAR_DUPLICATE = 0.9
"""Jaccard similarity of shingles over tokens with their names and numbers."""

SAME = "KernelBench's problem"
NEAR = "near duplicate of KernelBench's problem"
SIZES = "sizes of KernelBench's problem"


class KernelBenchLeaks:
    """Says of a problem which problem of KernelBench it gives away, if any."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        self._by_reference = {reference_hash(problem.source): problem.id for problem in problems}
        self._by_sizes = {
            sizes: problem.id for problem in problems if (sizes := size_tuple(problem.constants.values()))
        }
        self._shingles = [(_shingles(problem.source), problem.id) for problem in problems]

    @property
    def version(self) -> str:
        """A digest of the problems that are known."""
        return digest_of([problem.sha256 for problem in self.problems])

    def leak(self, problem: Problem) -> tuple[str, str] | None:
        """The reason and the problem of KernelBench, or None."""
        try:
            if same := self._by_reference.get(reference_hash(problem.source)):
                return SAME, same
        except NotPython:
            return None
        if same := self._by_sizes.get(size_tuple(problem.constants.values())):
            return SIZES, same
        own = _shingles(problem.source)
        for shingles, problem_id in self._shingles:
            fewer, more = sorted((len(own), len(shingles)))
            if fewer >= NEAR_DUPLICATE * more and jaccard(own, shingles) >= NEAR_DUPLICATE:
                return NEAR, problem_id
        return None

    def leak_of_source(self, source: str) -> tuple[str, str] | None:
        """As `leak`, of a module's text; None for a text that is no problem."""
        try:
            problem = parse_problem(source, id="corpus/row", suite="corpus")
        except NotAProblem:
            return None
        return self.leak(problem)


def known_kernelbench() -> KernelBenchLeaks | None:
    """The rules for the checkout that `KERNELBENCH_ROOT` names; None without one."""
    if not os.environ.get("KERNELBENCH_ROOT"):
        return None
    return KernelBenchLeaks(load_kernelbench(KERNELBENCH_LEVELS))


def leak_rule() -> Callable[[Problem], str | None]:
    """Why a problem gives KernelBench away: by all rules where a checkout is known, else by sizes alone."""
    known = known_kernelbench()

    def leak(problem: Problem) -> str | None:
        if known is not None:
            match = known.leak(problem)
            return match[0] if match else None
        return SIZES if has_evaluation_sizes(problem.constants.values()) else None

    return leak


def _shingles(source: str) -> Shingles:
    return shingles_of(code_tokens(source, "triton"))
