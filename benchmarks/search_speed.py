"""Claim: a search among 48,777 kernels takes milliseconds, and the graph finds what exact search finds.

Side by side in one run, each from a problem's text to the chosen rows:

- ours: dense and hybrid, with and without a filter;
- flat inner product with three times the wanted rows, filtered afterwards (how the project that this one
  follows searched), given our vectors and the same guard against the problem itself;
- sentence-transformers' `semantic_search` over the same vectors.

    python benchmarks/search_speed.py --write
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import faiss
import numpy as np
import torch
from report import Report
from sentence_transformers.util import semantic_search
from synthetic_programs import Program, Spelling, draw_programs, spell

from kernel_core.config import IndexConfig, RetrievalConfig
from kernel_core.corpus import table
from kernel_core.corpus.normalise import fingerprint
from kernel_core.problems.generate import generate
from kernel_core.problems.load import load_dojo
from kernel_core.records import Exemplar, Problem
from kernel_core.retrieval.embed import OfflineEmbedder, Vectors
from kernel_core.retrieval.index import RARITY, VECTORS, build_index
from kernel_core.retrieval.search import open_retriever
from kernel_core.retrieval.vectorise import read_npy
from kernel_core.retrieval.vectors import build_faiss, search_faiss
from kernel_core.store import Store

ROWS = 48_777
K = 3
_PERCENTILES = ("p50 ms", "p99 ms", "p50 CPU ms", "p99 CPU ms")
"""Wall clock, and CPU time of all threads: the second is what a busy machine leaves alone."""


def main() -> int:
    """Build an index of so many references, time each way of searching it, print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--folder", type=Path, help="keep the corpus and its index here, for another run")
    parser.add_argument("--write", action="store_true", help="write the figures to docs/results")
    arguments = parser.parse_args()
    report = Report("search_speed", f"--rows {arguments.rows} --queries {arguments.queries}", __doc__)
    with tempfile.TemporaryDirectory() as scratch:
        store = _indexed(arguments.folder or Path(scratch), arguments.rows)
        problems = _problems(arguments.queries)
        vectors = _vectors(store)
        ways = _ways(store, vectors)
        columns = ("way", *_PERCENTILES)
        title = f"end to end, query embedded, {len(vectors):,} references, k = {K}"
        report.table(title, columns, [_timed(way, ask, problems) for way, ask in ways])
        embedder = OfflineEmbedder(read_npy(store.read(RARITY), RARITY))
        queries = embedder.embed([problem.source for problem in problems])
        report.table(
            "the index alone",
            ("kind", "CPU seconds to build", "MB", *_PERCENTILES, "recall@10 of flat"),
            _kinds(vectors, queries),
        )
    report.finish(arguments.write)
    return 0


def _indexed(folder: Path, rows: int) -> Store:
    """An index of so many different invented references; cleaning is another benchmark's claim."""
    snapshot, index = Store(folder / "run" / "snapshot"), Store(folder / "run" / "index")
    if not index.sealed():
        data = table.to_parquet([_exemplar(at, program) for at, program in enumerate(draw_programs(rows, 6))])
        snapshot.seal("snapshot", {"exemplars.parquet": snapshot.write("exemplars.parquet", data)}, {})
        build_index(IndexConfig(), snapshot, index)
    assert index.open_sealed("index").meta["num_references"] == rows
    return index


def _exemplar(at: int, program: Program) -> Exemplar:
    text = spell(program, Spelling(at, at, at, at))
    return Exemplar(
        id=f"invented/{at}",
        source="invented",
        source_revision="6",
        row_key=str(at),
        licence="MIT",
        language="inductor_triton",
        reference_code=text.reference,
        kernel_code=text.kernel,
        reference_hash=fingerprint(text.reference).reference_hash,
        kernel_hash=str(at),
    )


def _problems(count: int) -> list[Problem]:
    drawn = [made.problem for made in generate("held_out", count, seed=1)]
    return [*load_dojo(), *drawn][:count]


def _vectors(store: Store) -> Vectors:
    index = faiss.deserialize_index(np.frombuffer(store.read(VECTORS), np.uint8))
    return index.reconstruct_n(0, index.ntotal)


_Ask = Callable[[Problem], object]


def _ways(store: Store, vectors: Vectors) -> list[tuple[str, _Ask]]:
    dense = open_retriever(store)
    hybrid = open_retriever(store, config=RetrievalConfig(mode="hybrid"))
    filtered = open_retriever(store, config=RetrievalConfig(languages=("inductor_triton",)))
    embedder = OfflineEmbedder(read_npy(store.read(RARITY), RARITY))
    languages = ["inductor_triton"] * len(vectors)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    tensor = torch.from_numpy(vectors)

    def over_fetched(problem: Problem) -> list[int]:
        fingerprint(problem.source)  # the guard against itself, which each of them needs
        _, rows = flat.search(embedder.embed([problem.source]), 3 * K)
        return [row for row in rows[0].tolist() if languages[row] == "inductor_triton"][:K]

    def plain(problem: Problem) -> object:
        fingerprint(problem.source)
        query = torch.from_numpy(embedder.embed([problem.source]))
        return semantic_search(query, tensor, top_k=K)

    return [
        ("ours, dense", lambda problem: dense.search(problem, K)),
        ("ours, dense, filtered by language", lambda problem: filtered.search(problem, K)),
        ("ours, hybrid", lambda problem: hybrid.search(problem, K)),
        ("flat inner product, over-fetch and filter", over_fetched),
        ("sentence-transformers semantic_search", plain),
    ]


class _Clock:
    """Wall and CPU milliseconds of each call."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def __enter__(self) -> None:
        self._started = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall.append((time.perf_counter() - self._started[0]) * 1e3)
        self.cpu.append((time.process_time() - self._started[1]) * 1e3)

    def percentiles(self) -> list[str]:
        """The cells of `_PERCENTILES`."""
        return [f"{np.percentile(taken, at):.1f}" for taken in (self.wall, self.cpu) for at in (50, 99)]


def _timed(name: str, ask: _Ask, problems: Sequence[Problem]) -> list[str]:
    for problem in problems[:20]:
        ask(problem)
    clock = _Clock()
    for problem in problems:
        fingerprint.cache_clear()  # a query is new
        with clock:
            ask(problem)
    return [name, *clock.percentiles()]


def _kinds(vectors: Vectors, queries: Vectors) -> list[list[str]]:
    truth: list[set[int]] = []
    rows = []
    for kind in ("flat", "hnsw", "ivfpq"):
        started = time.process_time()
        index = build_faiss(vectors, kind)
        built = time.process_time() - started
        clock, found = _Clock(), []
        for query in queries:
            with clock:
                _, near = search_faiss(index, query[None], 10)
            found.append(set(near[0].tolist()))
        truth = truth or found
        recall = np.mean([len(mine & right) / 10 for mine, right in zip(found, truth, strict=True)])
        size = len(faiss.serialize_index(index)) / 2**20
        rows.append([kind, f"{built:.1f}", f"{size:.0f}", *clock.percentiles(), f"{recall:.3f}"])
    return rows


if __name__ == "__main__":
    sys.exit(main())
