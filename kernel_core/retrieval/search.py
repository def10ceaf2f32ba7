"""Search: the best kernels of the nearest references, never of the problem itself, different ones first."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kernel_core.corpus import table
from kernel_core.corpus.normalise import NORMALISER_VERSION, NotPython, reference_hash
from kernel_core.errors import Corrupt
from kernel_core.records import Problem
from kernel_core.retrieval.embed import Embedder
from kernel_core.retrieval.index import (
    EXEMPLARS,
    INDEX_VERSION,
    PROBE,
    PROBE_TEXT,
    RARITY,
    REFERENCES,
    VECTORS,
    open_embedder,
    read_npy,
)
from kernel_core.retrieval.protocol import Neighbour, Retriever
from kernel_core.retrieval.threads import one_thread
from kernel_core.store import Manifest, Store, digest_of

_OVERFETCH = 8
"""Candidates a wanted neighbour, so that exclusion and diversity have a choice."""
_SAME_MODEL = 0.999
"""Cosine similarity of the probe below which the model is another one than built the index."""
_QUERY_BATCH = 32

_REBUILD = "build it again with `dojo index`"


def open_retriever(index: Store, snapshot: Store | None = None, device: str = "cpu") -> Retriever:
    """A retriever over a sealed index, every file verified.

    `snapshot` is the corpus that the index must be of; without it only the index itself is checked.
    Raises `NotFound` without an index and `Corrupt`, naming the command that rebuilds it, for one that is
    damaged, stale, of another version or of another model.
    """
    manifest = index.open_sealed("index")
    _refuse_stale(manifest, index, snapshot)
    meta = manifest.meta
    rarity = read_npy(index.read(RARITY), index.path(RARITY)) if RARITY in manifest.files else None
    embedder = open_embedder(meta["embedder"], device, _QUERY_BATCH, rarity=rarity)
    probe = read_npy(index.read(PROBE), index.path(PROBE))
    now = embedder.embed([PROBE_TEXT])[0]
    if now.shape != probe.shape or float(now @ probe) < _SAME_MODEL:
        raise Corrupt(f"{index.root} was built by another model than {meta['embedder']} is now; {_REBUILD}")
    vectors = _read_vectors(index)
    exemplars = table.read_table(index.read(EXEMPLARS), index.path(EXEMPLARS))
    references = _read_references(index)
    if not vectors.ntotal == exemplars.num_rows == references.num_rows == meta["num_references"]:
        raise Corrupt(
            f"{index.root} has {vectors.ntotal} vectors for {exemplars.num_rows} exemplars; {_REBUILD}"
        )
    return IndexRetriever(vectors, exemplars, references, embedder)


class IndexRetriever:
    """A `Retriever` over one index."""

    def __init__(self, vectors: faiss.Index, exemplars: pa.Table, references: pa.Table, embedder: Embedder):
        self._vectors = vectors
        self._exemplars = exemplars
        self._reference_hashes: list[str] = references["reference_hash"].to_pylist()
        self._structure_hashes: list[str] = references["structure_hash"].to_pylist()
        levels, tasks = exemplars["task_level"].to_pylist(), exemplars["task_id"].to_pylist()
        self._tasks: list[tuple[int | None, int | None]] = list(zip(levels, tasks, strict=True))
        self._embedder = embedder

    def __len__(self) -> int:
        return int(self._vectors.ntotal)

    def search(self, query: Problem | str, k: int) -> list[Neighbour]:
        """At most `k` neighbours, nearest first, never one whose reference is the problem itself.

        Each is the best kernel of its reference. References that are one computation at several sizes
        come after the first of them has had others beside it.
        """
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[Problem | str], k: int) -> list[list[Neighbour]]:
        """`search` for many at once."""
        if k <= 0 or not queries:
            return [[] for _ in queries]
        texts = [query.source if isinstance(query, Problem) else query for query in queries]
        wanted = min(len(self), _OVERFETCH * (k + 1))
        vectors = self._embedder.embed(texts)
        with one_thread():  # one query is too little work to share
            scores, rows = self._vectors.search(vectors, wanted)
        found: list[list[Neighbour]] = []
        for query, text, row_ids, near in zip(queries, texts, rows.tolist(), scores.tolist(), strict=True):
            own, task = _own_hash(text), _own_task(query)
            allowed = [
                (row, score)
                for row, score in zip(row_ids, near, strict=True)
                if row >= 0 and self._reference_hashes[row] != own and self._tasks[row] != task
            ]
            found.append([self._neighbour(row, score) for row, score in self._chosen(allowed, k)])
        return found

    def _chosen(self, allowed: list[tuple[int, float]], k: int) -> list[tuple[int, float]]:
        """The rows to show: first one of each computation, then further sizes of the same."""
        first: list[tuple[int, float]] = []
        further: list[tuple[int, float]] = []
        structures: set[str] = set()
        for row, score in allowed:
            seen = self._structure_hashes[row] in structures
            structures.add(self._structure_hashes[row])
            (further if seen else first).append((row, score))
        chosen = (first + further)[:k]
        return sorted(chosen, key=lambda pair: -pair[1])

    def _neighbour(self, row: int, score: float) -> Neighbour:
        (exemplar,) = table.to_exemplars(self._exemplars.slice(row, 1), "the index")
        return Neighbour(exemplar=exemplar, score=score)


def neighbour_rows(neighbours: Sequence[Neighbour]) -> list[dict[str, str | float]]:
    """One table row a neighbour, for `dojo search`."""
    return [
        {
            "score": round(found.score, 3),
            "exemplar": found.exemplar.id,
            "family": found.exemplar.family,
            "grade": found.exemplar.grade,
            "language": found.exemplar.language,
            "licence": found.exemplar.licence,
            "attribution": found.exemplar.attribution,
        }
        for found in neighbours
    ]


def _own_hash(text: str) -> str | None:
    """The reference hash of a query that is a module; None for words."""
    if "def " not in text:
        return None
    try:
        return reference_hash(text)
    except NotPython:
        return None


def _own_task(query: Problem | str) -> tuple[int, int] | None:
    """Level and number of a KernelBench problem, which a corpus row may name as its task."""
    if isinstance(query, str) or query.suite != "kernelbench" or query.level is None:
        return None
    number = re.match(r"\d+", query.name)
    return (query.level, int(number.group())) if number else None


def _refuse_stale(manifest: Manifest, index: Store, snapshot: Store | None) -> None:
    meta = manifest.meta
    versions = {"index_version": INDEX_VERSION, "normaliser_version": NORMALISER_VERSION}
    for name, version in versions.items():
        if meta.get(name) != version:
            raise Corrupt(
                f"{index.root} has {name} {meta.get(name)}, this version reads {version}; {_REBUILD}"
            )
    if snapshot is None:
        return
    corpus = digest_of(snapshot.open_sealed("snapshot", verify=False).model_dump())
    if meta["corpus_digest"] != corpus:
        raise Corrupt(f"{index.root} is of another corpus than {snapshot.root} now holds; {_REBUILD}")


def _read_vectors(index: Store) -> faiss.Index:
    try:
        return faiss.deserialize_index(np.frombuffer(index.read(VECTORS), np.uint8))
    except RuntimeError as error:
        raise Corrupt(f"{index.path(VECTORS)} is not a FAISS index; {_REBUILD}") from error


def _read_references(index: Store) -> pa.Table:
    try:
        return pq.read_table(io.BytesIO(index.read(REFERENCES)))
    except (pa.ArrowInvalid, OSError) as error:
        raise Corrupt(f"{index.path(REFERENCES)} is not a Parquet file; {_REBUILD}") from error
