"""Authors of candidates: the generator, and the winners of a best-of-N run on the written problems.

A policy, an endpoint or retrieval takes part by `dojo best-of-n problems.suite=RUN/optimize/problems` with
its own settings. The folder of winners of that run is an author here.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Sequence

import torch

from kernel_core.evaluation.best_of_n import load_selection
from kernel_core.generator.answer import answer
from kernel_core.generator.library_calls import ATTENTION, CONVOLUTIONS, PRODUCTS, LibraryCalls
from kernel_core.generator.read import Unreadable
from kernel_core.records import Candidate, Problem, Record
from kernel_core.store import Store


class AuthoredCandidate(Record):
    """A candidate and its author."""

    author: str
    candidate: Candidate
    is_of_one_size: bool = False
    """Its kernels are compiled anew for each size."""


Author = Callable[[Problem], Sequence[AuthoredCandidate]]


_LIBRARY = {
    "generator, library products": LibraryCalls(PRODUCTS),
    "generator, library convolutions": LibraryCalls(CONVOLUTIONS | {ATTENTION}),
    "generator": LibraryCalls(frozenset({ATTENTION})),
}
"""Calls that stay torch's, by author. The generator writes scores to memory, as no fused attention does."""


_READING = threading.Lock()
"""CPython 3.11 counts the depth of all threads' syntax trees together, and refuses one that others joined."""


def generator(problem: Problem) -> list[AuthoredCandidate]:
    """Return the generator's kernels: with the library's products, and with products of their own.

    Own products have the precision that torch is set to, so that outputs keep theirs. A float32
    product is three TF32 products, which tensor cores compute faster than IEEE arithmetic computes one. The
    generator writes each text again with sizes as constants.
    """
    precision = "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    written: dict[str, AuthoredCandidate] = {}
    for name, library in _LIBRARY.items():
        try:
            with _READING:
                text = answer(problem, precision, library=library, for_speed=True)
        except Unreadable:
            continue
        for source, words in ((text.source, ""), (with_constant_sizes(text.source), ", constant sizes")):
            candidate = Candidate.from_source(source, text.thinking)
            entry = AuthoredCandidate(author=name + words, candidate=candidate, is_of_one_size=bool(words))
            written.setdefault(candidate.sha256, entry)
    return list(written.values())


def with_constant_sizes(source: str) -> str:
    """Return generated kernels that take numbers as constants.

    Divisions of indices become multiplications, and short loops are unrolled.
    """
    lines = source.encode().splitlines(keepends=True)
    with _READING:
        functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        parameters = function.args.args
        if any(parameter.arg.endswith("_ptr") for parameter in parameters):
            for parameter in reversed(parameters):
                if parameter.annotation is None and not parameter.arg.endswith("_ptr"):
                    row, column = (parameter.end_lineno or 0) - 1, parameter.end_col_offset or 0
                    lines[row] = lines[row][:column] + b": tl.constexpr" + lines[row][column:]
    return b"".join(lines).decode()


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
