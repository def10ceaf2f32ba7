"""`dojo search`: the corpus kernels nearest to words or to a problem, and their code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Column, Table

from kernel_core.config import RetrievalConfig
from kernel_core.records import Exemplar
from kernel_core.runs.run_folder import Run


def search(
    run: Run, query: str, k: int, config: RetrievalConfig, exclude: Sequence[Path], num_printed: int
) -> int:
    """Print the nearest exemplars of a run's index as a table, then the code of the first `num_printed`."""
    index, snapshot = run.store.child("index"), run.store.child("snapshot")
    index.open_sealed("index", verify=False)
    from kernel_core.problems.load import load_file
    from kernel_core.retrieval.search import open_retriever

    wanted = load_file(Path(query)) if query.endswith(".py") else query
    retriever = open_retriever(index, snapshot if snapshot.sealed() else None, config=config)
    found = retriever.search(wanted, k, [load_file(path) for path in exclude])
    table = Table("score", Column("exemplar", no_wrap=True), "grade", "licence", Column("why", max_width=60))
    for one in found:
        exemplar = one.exemplar
        table.add_row(f"{one.score:.3f}", exemplar.id, exemplar.grade, exemplar.licence, one.why)
    console = Console()
    console.print(table)
    for one in found[:num_printed]:
        _print_code(one.exemplar, console)
    return 0


def _print_code(exemplar: Exemplar, console: Console) -> None:
    console.rule(f"{exemplar.id} ({exemplar.licence}; {exemplar.attribution})")
    kernel = "cpp" if exemplar.language == "cuda_cpp" else "python"
    for text, lexer in ((exemplar.reference_code, "python"), (exemplar.kernel_code, kernel)):
        console.print(Syntax(text.strip(), lexer, background_color="default", word_wrap=True))
        console.print()
