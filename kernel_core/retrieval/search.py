"""Search: the best kernels of the nearest references, never of the problem itself, different ones first."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import faiss
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kernel_core.config import RetrievalConfig
from kernel_core.corpus import table
from kernel_core.corpus.normalise import NORMALISER_VERSION
from kernel_core.errors import Corrupt
from kernel_core.records import Problem
from kernel_core.retrieval.allowed import Allowed
from kernel_core.retrieval.describe import TextKind, text_for
from kernel_core.retrieval.embed import Embedder, Vectors
from kernel_core.retrieval.index import (
    EXEMPLARS,
    INDEX_VERSION,
    PROBE,
    PROBE_TEXT,
    RARITY,
    SAME_MODEL,
    WORDS,
    open_embedder,
    read_references,
    read_vectors,
    rebuild_command,
)
from kernel_core.retrieval.protocol import Neighbour, Retriever
from kernel_core.retrieval.ranking import diverse, fused, speed_prior
from kernel_core.retrieval.reasons import reasons_for
from kernel_core.retrieval.vectorise import read_npy
from kernel_core.retrieval.vectors import Mask, search_faiss, vectors_of
from kernel_core.retrieval.words import WordIndex
from kernel_core.store import Manifest, Store, digest_of

_CANDIDATES = 8
"""Candidates a wanted neighbour, so that fusion and diversity have a choice."""
_QUERY_BATCH = 32


def open_retriever(
    index: Store,
    snapshot: Store | None = None,
    device: str = "cpu",
    config: RetrievalConfig = RetrievalConfig(),  # noqa: B008  (frozen)
) -> Retriever:
    """Open a retriever over a sealed index, every file verified.

    `snapshot` is the corpus that the index must be of; without it only the index itself is checked.
    Raises `NotFound` without an index, and `CallerError` when the filters of `config` leave nothing. Raises
    `Corrupt`, naming the command that rebuilds it, for an index that is damaged, stale, of another version
    or of another model.
    """
    manifest = index.open_sealed("index")
    rebuild = rebuild_command(index)
    _refuse_stale(manifest, index, snapshot)
    meta = manifest.meta
    rarity = read_npy(index.read(RARITY), index.path(RARITY)) if RARITY in manifest.files else None
    embedder = open_embedder(meta["embedder"], device, _QUERY_BATCH, rarity=rarity)
    probe = read_npy(index.read(PROBE), index.path(PROBE))
    now = embedder.embed([PROBE_TEXT])[0]
    if now.shape != probe.shape or float(now @ probe) < SAME_MODEL:
        raise Corrupt(f"{index.root} was built by another model than {meta['embedder']} is now; {rebuild}")
    vectors = read_vectors(index)
    exemplars = table.read_table(index.read(EXEMPLARS), index.path(EXEMPLARS))
    references = read_references(index)
    if not vectors.ntotal == exemplars.num_rows == references.num_rows == meta["num_references"]:
        raise Corrupt(
            f"{index.root} has {vectors.ntotal} vectors for {exemplars.num_rows} exemplars; {rebuild}"
        )
    words = WordIndex.from_bytes(index.read(WORDS), index.path(WORDS)) if config.mode == "hybrid" else None
    return IndexRetriever(vectors, exemplars, references, embedder, meta["text"], words, config)


@dataclass(frozen=True)
class _ScoredRow:
    """Row that may be shown, with its similarity and merit: likeness or fused rank, and speed."""

    row: int
    score: float
    merit: float
    why: str


class IndexRetriever:
    """A `Retriever` over one index."""

    def __init__(
        self,
        vectors: faiss.Index,
        exemplars: pa.Table,
        references: pa.Table,
        embedder: Embedder,
        text: TextKind = "source",
        words: WordIndex | None = None,
        config: RetrievalConfig = RetrievalConfig(),  # noqa: B008  (frozen)
    ):
        self._vectors = vectors
        self._exemplars = exemplars
        self._structure_hashes: list[str] = references["structure_hash"].to_pylist()
        self._priors = _priors(exemplars)
        self._allowed = Allowed(exemplars, references, config)
        self._embedder = embedder
        self._text = text
        self._words = words
        self._config = config

    def __len__(self) -> int:
        return int(self._vectors.ntotal)

    def search(self, query: Problem | str, k: int, exclude: Sequence[Problem] = ()) -> list[Neighbour]:
        """Return at most `k` neighbours, nearest first, never one with the problem itself as its reference.

        Each is the best kernel of its reference. References that are one computation at several sizes
        come after the first of them has had others beside it.
        """
        return self.search_many([query], k, exclude)[0]

    def search_many(
        self, queries: Sequence[Problem | str], k: int, exclude: Sequence[Problem] = ()
    ) -> list[list[Neighbour]]:
        """`search` for many at once."""
        if k <= 0 or not queries:
            return [[] for _ in queries]
        texts = [query.source if isinstance(query, Problem) else query for query in queries]
        vectors = self._embedder.embed([text_for(self._text, text) for text in texts])
        results: list[list[Neighbour]] = []
        for query, text, vector in zip(queries, texts, vectors, strict=True):
            allowed = self._allowed.for_query(query, exclude)
            candidates = self._candidates(text, vector, allowed, min(len(self), _CANDIDATES * (k + 1)))
            chosen = sorted(self._chosen(candidates, k), key=lambda candidate: -candidate.merit)
            results.append([self._neighbour(text, candidate) for candidate in chosen])
        return results

    def _candidates(self, text: str, vector: Vectors, allowed: Mask, count: int) -> list[_ScoredRow]:
        """Rows that may be shown, the most promising first."""
        if self._config.mode == "random":
            drawn = np.flatnonzero(allowed).tolist()
            rows = np.asarray(random.Random(text).sample(drawn, min(count, len(drawn))), np.int64)
            scores = vectors_of(self._vectors, rows) @ vector
            # A falling merit keeps the order of the draw.
            return [
                _ScoredRow(row, float(score), -position, "drawn at random")
                for position, (row, score) in enumerate(zip(rows.tolist(), scores, strict=True))
            ]
        scores, near = search_faiss(self._vectors, vector[None], count, allowed)
        dense = {int(row): float(score) for row, score in zip(near[0], scores[0], strict=True) if row >= 0}
        if self._words is None:
            return self._ranked({row: (score, score, "") for row, score in dense.items()})
        worded = self._words.ranked(text, count, allowed)
        others = np.asarray([row for row in worded if row not in dense], np.int64)
        likeness = dense | dict(
            zip(others.tolist(), (vectors_of(self._vectors, others) @ vector).tolist(), strict=True)
        )
        ranks = fused([list(dense), worded])
        return self._ranked(
            {row: (likeness[row], rank, "shares its words" * (row in worded)) for row, rank in ranks.items()}
        )

    def _ranked(self, scored: dict[int, tuple[float, float, str]]) -> list[_ScoredRow]:
        candidates = [
            _ScoredRow(row, score, merit + float(self._priors[row]), why)
            for row, (score, merit, why) in scored.items()
        ]
        return sorted(candidates, key=lambda candidate: -candidate.merit)

    def _chosen(self, candidates: list[_ScoredRow], k: int) -> list[_ScoredRow]:
        """Choose the rows to show: one of each computation, unlike each other, then further sizes of
        these."""
        first: dict[str, _ScoredRow] = {}
        for candidate in candidates:
            first.setdefault(self._structure_hashes[candidate.row], candidate)
        distinct = list(first.values())
        further = [
            candidate
            for candidate in candidates
            if first[self._structure_hashes[candidate.row]] is not candidate
        ]
        if self._config.diversity and self._config.mode != "random" and 1 < k < len(distinct):
            merits = np.asarray([candidate.merit for candidate in distinct], np.float32)
            vectors = vectors_of(
                self._vectors, np.asarray([candidate.row for candidate in distinct], np.int64)
            )
            distinct = [distinct[at] for at in diverse(merits, vectors, k, self._config.diversity)]
        return (distinct + further)[:k]

    def _neighbour(self, text: str, candidate: _ScoredRow) -> Neighbour:
        (exemplar,) = table.to_exemplars(self._exemplars.slice(candidate.row, 1), "the index")
        reasons = [*([candidate.why] if candidate.why else []), *reasons_for(text, exemplar)]
        return Neighbour(exemplar=exemplar, score=candidate.score, why="; ".join(reasons))


def _priors(exemplars: pa.Table) -> npt.NDArray[np.float32]:
    measured, predicted = exemplars["verified_speedup"], exemplars["predicted_speedup"]
    return np.asarray(
        [
            speed_prior(timed if timed is not None else guessed)
            for timed, guessed in zip(measured.to_pylist(), predicted.to_pylist(), strict=True)
        ],
        np.float32,
    )


def _refuse_stale(manifest: Manifest, index: Store, snapshot: Store | None) -> None:
    meta, rebuild = manifest.meta, rebuild_command(index)
    versions = {"index_version": INDEX_VERSION, "normaliser_version": NORMALISER_VERSION}
    for name, version in versions.items():
        if meta.get(name) != version:
            raise Corrupt(
                f"{index.root} has {name} {meta.get(name)}, this version reads {version}; {rebuild}"
            )
    if snapshot is None:
        return
    corpus = digest_of(snapshot.open_sealed("snapshot", verify=False).model_dump())
    if meta["corpus_digest"] != corpus:
        raise Corrupt(f"{index.root} is of another corpus than {snapshot.root} now holds; {rebuild}")
