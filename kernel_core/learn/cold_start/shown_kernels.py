"""The kernels in a prompt of the cold start, and answers that have to be read off them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from kernel_core.learn.cold_start.renaming import rename_alike
from kernel_core.records import Exemplar, Problem
from kernel_core.retrieval.protocol import Retriever


def shown_kernels(
    problems: Sequence[Problem], retriever: Retriever | None, count: int
) -> Mapping[str, tuple[Exemplar, ...]]:
    """The exemplars that a rollout of each problem would be shown, by its id."""
    if retriever is None or count == 0:
        return {}
    found = retriever.search_many(problems, count)
    return {
        problem.id: tuple(neighbour.exemplar for neighbour in neighbours)
        for problem, neighbours in zip(problems, found, strict=True)
    }


def most_alike(kernels: Sequence[Exemplar], shown: Exemplar) -> Exemplar:
    """The kernel that shares the largest part of its lines with the one shown."""
    wanted = set(shown.kernel_code.splitlines())

    def likeness(one: Exemplar) -> float:
        lines = set(one.kernel_code.splitlines())
        return len(lines & wanted) / max(1, len(lines | wanted))

    return max(kernels, key=likeness)


def with_drawn_names(
    shown: Sequence[Exemplar], answer: str, rng: random.Random
) -> tuple[tuple[Exemplar, ...], str]:
    """The exemplars and the answer's kernel, with one drawn name for each that several of them have."""
    *texts, renamed = rename_alike([*(one.kernel_code for one in shown), answer], rng)
    pairs = zip(shown, texts, strict=True)
    return tuple(one.model_copy(update={"kernel_code": text}) for one, text in pairs), renamed
