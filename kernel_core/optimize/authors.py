"""Authors of candidates: the generator, and the winners of a best-of-N run on the written problems.

A policy, an endpoint or retrieval takes part by `dojo best-of-n problems.suite=RUN/optimize/problems` with
its own settings. The folder of winners of that run is an author here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kernel_core.evaluation.best_of_n import load_selection
from kernel_core.generator.answer import answer
from kernel_core.generator.read import PRODUCTS, Unreadable
from kernel_core.records import Candidate, Problem, Record
from kernel_core.store import Store


class AuthoredCandidate(Record):
    """A candidate and its author."""

    author: str
    candidate: Candidate


Author = Callable[[Problem], Sequence[AuthoredCandidate]]


_ATTENTION = frozenset({"scaled_dot_product_attention"})
"""Stays with the library: the generator writes all scores to memory, as no fused attention does."""


def generator(problem: Problem) -> list[AuthoredCandidate]:
    """Return the generator's kernels: with the library's products, and with products of their own.

    Own products have the precision that torch is set to, so that outputs keep theirs.
    """
    precision = "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    written: list[AuthoredCandidate] = []
    for library, name in ((PRODUCTS, "generator, library products"), (_ATTENTION, "generator")):
        try:
            text = answer(problem, precision, library=library)
        except Unreadable:
            continue
        candidate = Candidate.from_source(text.source, text.thinking)
        if all(candidate.sha256 != earlier.candidate.sha256 for earlier in written):
            written.append(AuthoredCandidate(author=name, candidate=candidate))
    return written


def winners_of(folder: Store) -> Author:
    """Return the author that gives the winners of a best-of-N run, by the problems' names."""
    selection = load_selection(folder)
    by_name = {
        selected.problem_id.rpartition("/")[2]: selected.winner.ranked.candidate
        for selected in selection.winners
        if selected.winner is not None
    }

    def winners(problem: Problem) -> list[AuthoredCandidate]:
        candidate = by_name.get(problem.name)
        author = f"best of {selection.n}, {selection.policy_version}"
        return [AuthoredCandidate(author=author, candidate=candidate)] if candidate is not None else []

    return winners
