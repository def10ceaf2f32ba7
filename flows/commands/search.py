"""`dojo search`: the corpus kernels nearest to words or to a problem."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from kernel_core.runs import find_run


def search(query: str, root: str, run: str, k: int) -> int:
    """Print the nearest exemplars of a run's index."""
    index = find_run(root, run).store.child("index")
    index.open_sealed("index")
    from kernel_core.problems.load import load_file
    from kernel_core.retrieval.search import open_retriever

    wanted = load_file(Path(query)) if query.endswith(".py") else query
    table = Table(
        "score", Column("exemplar", no_wrap=True), "grade", "licence", Column("kernel", max_width=60)
    )
    for found in open_retriever(index).search(wanted, k):
        exemplar = found.exemplar
        code = [line for line in exemplar.kernel_code.splitlines() if "def " in line]
        first = code[0].strip().removeprefix("def ").partition("(")[0] if code else ""
        table.add_row(f"{found.score:.3f}", exemplar.id, exemplar.grade, exemplar.licence, first)
    Console().print(table)
    return 0
