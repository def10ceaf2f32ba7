"""What the rest of the system knows of retrieval: a problem in, the nearest exemplars out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kernel_core.records import Exemplar, Problem, Record


class Neighbour(Record):
    """An exemplar and how near it is (cosine similarity, 1 is the same)."""

    exemplar: Exemplar
    score: float


class Retriever(Protocol):
    """Finds exemplars for a problem or for words."""

    def search(self, query: Problem | str, k: int) -> list[Neighbour]:
        """At most `k` neighbours, nearest first, never one whose reference is the problem itself."""
        ...

    def search_many(self, queries: Sequence[Problem | str], k: int) -> list[list[Neighbour]]:
        """`search` for many at once."""
        ...
