"""Audits of problems as a table of a terminal and as rows of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from kernel_core.errors import NotAProblem
from kernel_core.gym.judge.problem_audit import ProblemAudit, audit_problem
from kernel_core.gym.oracle.input_families import DRAWS
from kernel_core.records import Constant, Problem

Audits = Mapping[str, ProblemAudit | NotAProblem]


def audit_each(problems: Iterable[Problem], sizes: dict[str, Constant]) -> Audits:
    """Audit each problem; return the results by id, with the error of a problem that does not run."""
    return {problem.id: _audit(problem, sizes) for problem in problems}


def audit_parts(audits: Audits) -> Iterator[RenderableType]:
    """Yield a table of the problems that accept a cheat or do not run, and a line with the counts."""
    table = Table("problem", *DRAWS, "never refused", title="accepted without work, by family of inputs")
    weak = lost = failed = 0
    for problem_id, audit in audits.items():
        if isinstance(audit, NotAProblem):
            failed += 1
            table.add_row(problem_id, str(audit))
            continue
        weak += bool(audit.draws[0].accepted)
        lost += bool(audit.never_refused)
        if any(draw.accepted for draw in audit.draws):
            cells = (", ".join(draw.accepted) if draw.usable else "-" for draw in audit.draws)
            table.add_row(problem_id, *cells, ", ".join(audit.never_refused))
    if table.row_count:
        yield table
    yield (
        f"{len(audits)} problems: {weak} accept something without work under their own inputs, "
        f"{lost} under every family of inputs; {failed} do not run"
    )


def audit_rows(audits: Audits) -> list[dict[str, Any]]:
    """Return one row per problem and family of inputs, and one with the error of a problem that does
    not run."""
    rows = [
        {"problem_id": problem_id, **draw.model_dump(), "error": ""}
        for problem_id, audit in audits.items()
        if not isinstance(audit, NotAProblem)
        for draw in audit.draws
    ]
    rows += [
        {"problem_id": problem_id, "draw": "own", "usable": False, "accepted": (), "error": str(audit)}
        for problem_id, audit in audits.items()
        if isinstance(audit, NotAProblem)
    ]
    return rows


def _audit(problem: Problem, sizes: dict[str, Constant]) -> ProblemAudit | NotAProblem:
    try:
        return audit_problem(problem, {**problem.cpu_constants, **sizes} if sizes else None)
    except NotAProblem as error:
        return error
