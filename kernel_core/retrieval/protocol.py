"""What the rest of the system knows of retrieval: a problem in, the nearest exemplars out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kernel_core.records import Exemplar, Problem, Record


class Neighbour(Record):
    """An exemplar, how near it is (cosine similarity, 1 is the same) and why it was chosen."""

    exemplar: Exemplar
    score: float
    why: str = ""


class Retriever(Protocol):
    """Finds exemplars for a problem or for words."""

    def search(self, query: Problem | str, k: int, exclude: Sequence[Problem] = ()) -> list[Neighbour]:
        """At most `k` neighbours, nearest first, never one of the problem itself or of an excluded one."""
        ...

    def search_many(
        self, queries: Sequence[Problem | str], k: int, exclude: Sequence[Problem] = ()
    ) -> list[list[Neighbour]]:
        """`search` for many at once."""
        ...
