"""Graded kernels for a problem of any source, as a corpus has them."""

from __future__ import annotations

from kernel_core.errors import NotAProblem
from kernel_core.generator.answer import Answer, answer
from kernel_core.generator.read import CONVOLUTIONS, PRODUCTS, Unreadable
from kernel_core.problems.graded import GradedKernel
from kernel_core.records import Problem


def graded_kernels(problem: Problem) -> list[GradedKernel]:
    """Return an answer that leaves convolutions to torch, and one that leaves all matrix products to it.

    Raises `NotAProblem` with the reason where no kernel can be written.
    """
    try:
        answers = [taught_answer(problem, library=library) for library in (CONVOLUTIONS, PRODUCTS)]
    except Unreadable as error:
        raise NotAProblem(f"no kernel can be written for it: {error}") from error
    return list({written.source: graded(written) for written in answers}.values())


def taught_answer(
    problem: Problem, on_meta: bool = False, library: frozenset[str] = CONVOLUTIONS
) -> Answer:
    """Return an answer in which calls of `library` stay torch's if a kernel is left to write, else none.

    Raises Unreadable as `answer` does.
    """
    try:
        return answer(problem, on_meta=on_meta, library=library)
    except Unreadable:
        return answer(problem, on_meta=on_meta)


def graded(written: Answer) -> GradedKernel:
    """Return an answer as a kernel of the best grade."""
    return GradedKernel(grade="tuned", source=written.source, thinking=written.thinking)
