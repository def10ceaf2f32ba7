"""Interface of retrieval for the rest of the system: a problem in, the nearest exemplars out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kernel_core.records import Exemplar, Problem, Record


class Neighbour(Record):
    """Exemplar with its cosine similarity (1 is the same) and the reason for its choice."""

    exemplar: Exemplar
    score: float
    why: str = ""


class Retriever(Protocol):
    """Finds exemplars for a problem or for words."""

    def search(self, query: Problem | str, k: int, exclude: Sequence[Problem] = ()) -> list[Neighbour]:
        """Return at most `k` neighbours, nearest first, never the problem itself or an excluded one."""
        ...

    def search_many(
        self, queries: Sequence[Problem | str], k: int, exclude: Sequence[Problem] = ()
    ) -> list[list[Neighbour]]:
        """`search` for many at once."""
        ...
