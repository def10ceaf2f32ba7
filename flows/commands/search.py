"""`dojo search`: the corpus kernels nearest to words or to a problem, and their code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

from flows.arguments import Count, NotNegative, Root
from kernel_core.config import RetrievalConfig
from kernel_core.runs.configure import build
from kernel_core.runs.run_folder import find_run


def search(
    query: str,
    /,
    *,
    run: str,
    root: Root = "runs",
    k: Annotated[Count, Parameter(name="-k")] = 5,
    mode: Literal["dense", "hybrid"] = "dense",
    language: tuple[str, ...] = (),
    exclude: tuple[Path, ...] = (),
    code: NotNegative = 1,
) -> int:
    """Print the nearest exemplars of a run's index as a table, and the code of the first.

    Args:
        query: words, or the file of a problem
        run: the run that has the index
        k: how many
        mode: hybrid has BM25 as well
        language: only this one; may be repeated
        exclude: the file of a problem; may be repeated
        code: print the code of the first so many
    """
    config = build(RetrievalConfig, {"mode": mode, "languages": language})
    store = find_run(root, run).store
    index, snapshot = store.child("index"), store.child("snapshot")
    index.open_sealed("index", verify=False)
    from kernel_core.problems.load import load_file
    from kernel_core.report.neighbours import neighbour_parts
    from kernel_core.retrieval.search import open_retriever

    wanted = load_file(Path(query)) if query.endswith(".py") else query
    retriever = open_retriever(index, snapshot if snapshot.sealed() else None, config=config)
    neighbours = retriever.search(wanted, k, [load_file(path) for path in exclude])
    for part in neighbour_parts(neighbours, code):
        Console().print(part)
    return 0
