"""Embedding similarity between kept exemplars and evaluation problems, by the offline embedder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernel_core.corpus.report import Survivor
from kernel_core.progress import Progress
from kernel_core.records import Exemplar, Problem
from kernel_core.retrieval.embed import OfflineEmbedder, Vectors

NEARBY = 0.95
"""Cosine similarity from which a reference is taken for an evaluation problem: far above what two problems
that only apply the same operators reach (docs/corpus.md), so that it takes what the other rules overlook."""

_BLOCK = 1024
_PROGRESS_EVERY = 256


@dataclass(frozen=True)
class Nearness:
    """Similarities between references and evaluation problems, by reference hash."""

    problems: Sequence[Problem]
    rows: Mapping[str, int]
    vectors: Vectors
    problem_vectors: Vectors

    def given_away(self) -> dict[str, str]:
        """Reference hashes that come nearer to a problem than `NEARBY`, each with the problem's id."""
        problem_ids: dict[str, str] = {}
        names = list(self.rows)
        for start in range(0, len(names), _BLOCK):
            similar = self.vectors[start : start + _BLOCK] @ self.problem_vectors.T
            best = similar.argmax(axis=1)
            for offset, problem in enumerate(best.tolist()):
                if similar[offset, problem] >= NEARBY:
                    problem_ids[names[start + offset]] = self.problems[problem].id
        return problem_ids

    def survivors(self, kept: Sequence[Exemplar], limit: int) -> tuple[Survivor, ...]:
        """The nearest kept row of each problem, the nearest of all first, at most `limit`."""
        first: dict[int, Exemplar] = {}
        for exemplar in kept:
            if exemplar.reference_hash in self.rows:
                first.setdefault(self.rows[exemplar.reference_hash], exemplar)
        rows = list(first)
        if not rows:
            return ()
        similar = self.problem_vectors @ self.vectors[rows].T
        best = similar.argmax(axis=1)
        survivors = [
            Survivor(
                problem=problem.id,
                exemplar=first[rows[at]].id,
                similarity=round(float(similar[index, at]), 4),
            )
            for index, (problem, at) in enumerate(zip(self.problems, best.tolist(), strict=True))
        ]
        return tuple(sorted(survivors, key=lambda survivor: -survivor.similarity)[:limit])


def nearness(
    exemplars: Sequence[Exemplar], problems: Sequence[Problem], progress: Progress
) -> Nearness | None:
    """Similarities of every distinct reference to every problem; None without references or problems."""
    texts = {exemplar.reference_hash: exemplar.reference_code for exemplar in exemplars}
    if not texts or not problems:
        return None
    references = list(texts.values())
    embedder = OfflineEmbedder.fit(references)
    pieces = []
    for start in range(0, len(references), _PROGRESS_EVERY):
        pieces.append(embedder.embed(references[start : start + _PROGRESS_EVERY]))
        progress("compare with evaluation", start + len(pieces[-1]), len(references))
    return Nearness(
        problems=problems,
        rows={name: row for row, name in enumerate(texts)},
        vectors=np.concatenate(pieces),
        problem_vectors=embedder.embed([problem.source for problem in problems]),
    )
