"""`dojo audit`: which answers that do no work would these problems accept?"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import track

from flows.arguments import Count, Sizes
from flows.commands.outputs import require_writable
from flows.terminal import working
from kernel_core.config import ProblemsConfig
from kernel_core.problems.load import load_problems, resize
from kernel_core.runs.configure import build, sizes_of


def audit(
    suite: str = "dojo", /, *, limit: Count | None = None, set_: Sizes = (), out: Path | None = None
) -> int:
    """Audit every problem of a suite, a folder or a file; print a row for each that accepts a cheat.

    Args:
        suite: dojo, generated, kernelbench, a folder or a file
        limit: at most so many problems
        out: the Parquet file where the whole table goes
    """
    sizes = sizes_of(set_)
    problems = load_problems(build(ProblemsConfig, {"suite": suite, "split": "all", "limit": limit}))
    for problem in problems if sizes else ():
        resize(problem, sizes)  # an unknown name is the caller's mistake, told before anything starts
    if out is not None:
        require_writable("--out", out, Path(suite))
    with working(f"auditing {len(problems)} problems of {suite} on this CPU"):
        from kernel_core.report.problem_audits import audit_each, audit_parts, audit_rows  # with torch

    audits = audit_each(track(problems, "audit", console=Console(stderr=True), transient=True), sizes)
    for part in audit_parts(audits):
        Console().print(part, soft_wrap=isinstance(part, str))
    if out is not None:
        import pandas as pd

        pd.DataFrame(audit_rows(audits)).to_parquet(out, index=False)
    return 0
