"""Problems of a sealed snapshot: the references of its rows, such as those of a corpus."""

from __future__ import annotations

from kernel_core.corpus.table import read_table
from kernel_core.errors import NotAProblem, NotFound
from kernel_core.problems.source import parse_problem
from kernel_core.records import Problem
from kernel_core.store import Store

_COLUMNS = ("id", "family", "cpu_sizes", "reference_code", "reference_hash")
_ROWS = "exemplars.parquet"


def load_snapshot_problems(folder: str) -> list[Problem]:
    """Each distinct reference of a snapshot once, in the snapshot's order, without rows that are no problem.

    Raises `NotFound` without a sealed snapshot in `folder`, or where none of its rows is a problem.
    """
    store = Store(folder)
    store.open_sealed("snapshot")
    table = read_table(store.read(_ROWS), store.path(_ROWS)).select(_COLUMNS)
    problems: dict[str, Problem] = {}
    for row in table.to_pylist():
        if row["reference_hash"] in problems:
            continue
        sizes = f"# cpu: {row['cpu_sizes']}\n" if row["cpu_sizes"] else ""
        try:
            problems[row["reference_hash"]] = parse_problem(
                sizes + row["reference_code"],
                id=f"snapshot/{row['id']}",
                suite="snapshot",
                family=row["family"] or "collected",
            )
        except NotAProblem:
            continue
    if not problems:
        raise NotFound(f"no row of the snapshot in {folder} has a reference in KernelBench's format")
    return list(problems.values())
