"""Problems without those that pay for nothing, which is found once and kept.

A problem pays for nothing where zeros, one constant or the outputs for other inputs pass under each family of
inputs that a judge tries. Each problem of files is audited at its CPU sizes, or at sizes by a rule. Problems
of generators are not, because their families were (docs/results/judge.md). References run in other processes,
which a reference may end.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from kernel_core.config import ProblemsConfig
from kernel_core.errors import NotAProblem, NotFound
from kernel_core.gym.contract.version import GYM_VERSION
from kernel_core.gym.oracle.input_families import HOSTILE, ONE_SIGNED, moderate
from kernel_core.gym.oracle.small_sizes import with_small_sizes
from kernel_core.problems.generators import ENDLESS_SUITES
from kernel_core.problems.load import load_problems
from kernel_core.python_module import import_environment, module_command
from kernel_core.records import Problem
from kernel_core.store import Store, digest_of

log = logging.getLogger(__name__)

_WITHOUT_LOOKING = frozenset({"zeros", "constant", "stale"})
"""Answers that do not depend on the inputs."""
_TRIED = ("own", ONE_SIGNED, *moderate(HOSTILE)[:2])
_MOST_BYTES = 1 << 26
"""Larger problems are not audited, as these are judged on a GPU and have no small sizes."""
_FEWEST_BY_PROCESS = 4
"""A process takes as long to start as this many audits."""


class Audited(NamedTuple):
    """The problems that a config names."""

    problems: list[Problem]
    left_out: tuple[str, ...] = ()
    """The ids of those that pay for nothing."""


def load_audited(config: ProblemsConfig, memory: Store | None = None) -> Audited:
    """The problems that a config names, with `problems.audited` without those that pay for nothing. What is
    found is kept in `memory`. Raises `NotFound` where all of them do."""
    problems = load_problems(config)
    accepted = _accepted_by(problems, memory) if config.audited else {}
    left_out = tuple(problem.id for problem in problems if accepted.get(problem.id))
    if left_out:
        log.info(
            "%d of %d problems pay for nothing and are left out: %s",
            len(left_out),
            len(problems),
            ", ".join(left_out),
        )
    kept = [problem for problem in problems if problem.id not in left_out]
    if not kept:
        raise NotFound(
            f"every problem of {config.suite} pays for nothing (`dojo audit {config.suite}` tells how); "
            "name others, or set problems.audited=false"
        )
    return Audited(kept, left_out)


def _accepted_by(problems: Sequence[Problem], memory: Store | None) -> dict[str, list[str]]:
    """The answers that each problem of files accepts, by its id."""
    names = {problem.id: _name(problem) for problem in problems if problem.suite not in ENDLESS_SUITES}
    known = {
        id_: memory.read_json(name)["accepted"]
        for id_, name in names.items()
        if memory is not None and memory.exists(name)
    }
    new = _audit_elsewhere(
        [problem for problem in problems if problem.id in names and problem.id not in known]
    )
    for id_, accepted in new.items():
        if memory is not None:
            memory.write_json(names[id_], {"problem": id_, "accepted": accepted})
    return known | new


def _name(problem: Problem) -> str:
    key = digest_of([problem.sha256, problem.precision, problem.cpu_constants, GYM_VERSION])
    return f"audits/{key[:2]}/{key}.json"


def _audit_elsewhere(problems: Sequence[Problem]) -> dict[str, list[str]]:
    """The findings of other processes, side by side: empty for a problem that is too large, and left out for
    one that does not run, so that every run is warned of it."""
    pending = [
        problem for problem in map(with_small_sizes, problems) if problem.cpu_constants or _is_small(problem)
    ]
    count = max(1, min(len(os.sched_getaffinity(0)), len(pending) // _FEWEST_BY_PROCESS))
    accepted_by_id: dict[str, list[str]] = {problem.id: [] for problem in problems}
    if pending:
        log.info("auditing %d problems for answers that do no work; kept for later runs", len(pending))
    with ThreadPoolExecutor(count) as threads:
        for part in threads.map(_audit_in_a_process, (pending[number::count] for number in range(count))):
            for id_, accepted in part.items():
                if accepted is None:
                    del accepted_by_id[id_]
                else:
                    accepted_by_id[id_] = accepted
    return accepted_by_id


def _audit_in_a_process(pending: list[Problem]) -> dict[str, list[str] | None]:
    """The findings of one process after another: None for a problem that does not run, and nothing about one
    that ends its process."""
    accepted_by_id: dict[str, list[str] | None] = {}
    while pending:
        asked = "\n".join(problem.model_dump_json() for problem in pending)
        process = subprocess.run(
            module_command(__name__),
            input=asked,
            capture_output=True,
            text=True,
            check=False,
            env=import_environment(),
        )
        answers = process.stdout.splitlines()
        for problem, answer in zip(pending, map(json.loads, answers), strict=False):
            if error := answer.get("error"):
                log.warning("%s stays in the count, though no kernel can pass: %s", problem.id, error)
            accepted_by_id[problem.id] = None if error else answer["accepted"]
        pending = pending[len(answers) + 1 :]
    return accepted_by_id


def _is_small(problem: Problem) -> bool:
    from kernel_core.gym.oracle.need import need_of  # with torch, which takes seconds

    need = need_of(problem, {})
    return need is not None and need.num_bytes <= _MOST_BYTES


def main() -> None:
    """Read problems from standard input, and write the answers that each accepts, line by line."""
    import torch

    from kernel_core.gym.judge.problem_audit import audit_problem

    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a reference may print
    for line in sys.stdin:
        try:
            audit = audit_problem(Problem.model_validate_json(line), draws=_TRIED)
            answer: dict[str, Any] = {"accepted": sorted(_WITHOUT_LOOKING.intersection(audit.never_refused))}
        except NotAProblem as error:
            answer = {"accepted": [], "error": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
