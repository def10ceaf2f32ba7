"""`dojo audit`: which answers that do no work would these problems accept?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track
from rich.table import Table

from flows.arguments import Count, Sizes
from flows.commands.judge import read_sizes
from flows.commands.outputs import require_writable
from flows.terminal import say
from kernel_core.config import ProblemsConfig
from kernel_core.errors import NotAProblem
from kernel_core.problems.load import load_problems, resize
from kernel_core.records import Constant, Problem
from kernel_core.runs.configure import build

if TYPE_CHECKING:
    from kernel_core.gym.judge.problem_audit import ProblemAudit

Audits = dict[str, "ProblemAudit | NotAProblem"]


def audit(
    suite: str = "dojo", /, *, limit: Count | None = None, set_: Sizes = (), out: Path | None = None
) -> int:
    """Audit every problem of a suite, a folder or a file; print a row for each that accepts a cheat.

    Args:
        suite: dojo, generated, kernelbench, a folder or a file
        limit: at most so many problems
        out: the Parquet file where the whole table goes
    """
    sizes = read_sizes(set_)
    problems = load_problems(build(ProblemsConfig, {"suite": suite, "split": "all", "limit": limit}))
    for problem in problems if sizes else ():
        resize(problem, sizes)  # an unknown name is the caller's mistake, told before anything starts
    if out is not None:
        require_writable("--out", out, Path(suite))
    shown = track(problems, "audit", console=Console(stderr=True), transient=True)
    audits: Audits = {problem.id: _audit(problem, sizes) for problem in shown}
    _show(audits)
    if out is not None:
        _write(audits, out)
    return 0


def _audit(problem: Problem, sizes: dict[str, Constant]) -> ProblemAudit | NotAProblem:
    from kernel_core.gym.judge.problem_audit import audit_problem

    try:
        return audit_problem(problem, {**problem.cpu_constants, **sizes} if sizes else None)
    except NotAProblem as error:
        return error


def _show(audits: Audits) -> None:
    from kernel_core.gym.oracle.input_families import DRAWS

    table = Table("problem", *DRAWS, "never refused", title="accepted without work, by family of inputs")
    weak = lost = failed = 0
    for problem_id, one in audits.items():
        if isinstance(one, NotAProblem):
            failed += 1
            table.add_row(problem_id, str(one))
            continue
        weak += bool(one.draws[0].accepted)
        lost += bool(one.never_refused)
        if any(draw.accepted for draw in one.draws):
            cells = (", ".join(draw.accepted) if draw.usable else "-" for draw in one.draws)
            table.add_row(problem_id, *cells, ", ".join(one.never_refused))
    if table.row_count:
        Console().print(table)
    say(
        f"{len(audits)} problems: {weak} accept something without work under their own inputs, "
        f"{lost} under every family of inputs; {failed} do not run"
    )


def _write(audits: Audits, out: Path) -> None:
    """One row a problem and family of inputs."""
    import pandas as pd

    rows = [
        {"problem_id": problem_id, **draw.model_dump(), "error": ""}
        for problem_id, one in audits.items()
        if not isinstance(one, NotAProblem)
        for draw in one.draws
    ]
    rows += [
        {"problem_id": problem_id, "draw": "own", "usable": False, "accepted": (), "error": str(one)}
        for problem_id, one in audits.items()
        if isinstance(one, NotAProblem)
    ]
    pd.DataFrame(rows).to_parquet(out, index=False)
