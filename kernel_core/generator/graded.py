"""Graded kernels for a problem of any source, as a corpus has them."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from kernel_core.errors import NotAProblem
from kernel_core.generator.answer import Answer, answer
from kernel_core.generator.draw.mutations import mutated
from kernel_core.generator.library import LIBRARY_FIRST, first_with_work, order_for
from kernel_core.generator.partial import limit_of, partial_answers
from kernel_core.generator.read import Unreadable
from kernel_core.problems.graded import Generated, GradedKernel
from kernel_core.records import Problem

LEAST_SHARED = 256
"""With fewer problems, starting processes takes longer than they save."""


def graded_kernels(problem: Problem) -> list[GradedKernel]:
    """Return the answers to a problem that are taught, the best first.

    Raises `NotAProblem` with the reason where no kernel can be written.
    """
    try:
        answers = taught_answers(problem)
    except Unreadable as error:
        raise NotAProblem(f"no kernel can be written for it: {error}") from error
    return list({written.source: graded(written) for written in answers}.values())


def taught_answers(problem: Problem, precision: str = "tf32x3", on_meta: bool = False) -> list[Answer]:
    """Return the answer to the whole module, or those that replace a part where it is too long to be sampled.

    Raises Unreadable as `answer` does, where there is no part either.
    """
    try:
        whole = whole_answer(problem, precision, on_meta)
    except Unreadable:
        parts = partial_answers(problem, precision, on_meta)
        if not parts:
            raise
        return parts
    if len(whole.source) <= limit_of(problem):
        return [whole]
    return partial_answers(problem, precision, on_meta) or [whole]


def whole_answer(
    problem: Problem, precision: str = "tf32x3", on_meta: bool = False, for_speed: bool = False
) -> Answer:
    """Return kernels for a whole module, in which products stay torch's if a kernel is left to write.

    `for_speed` prefers what is faster to what is short: own products where a precision makes these faster
    than the library's, and kernels that copy tensors. Raises Unreadable as `answer` does.
    """
    order = order_for(precision) if for_speed else LIBRARY_FIRST
    return first_with_work(lambda library: answer(problem, precision, on_meta, library, for_speed), order)


def widest_answer(problem: Problem, precision: str = "tf32x3") -> Answer:
    """Return kernels for a whole module, or for the part with the most work where there are none.

    A whole module is answered for speed. Raises Unreadable as `answer` does, where there is no part either.
    """
    try:
        return whole_answer(problem, precision, for_speed=True)
    except Unreadable:
        parts = partial_answers(problem, precision, most=1)
        if not parts:
            raise
        return parts[0]


def graded(written: Answer) -> GradedKernel:
    """Return an answer as a kernel of the best grade."""
    return GradedKernel(grade="tuned", source=written.source, thinking=written.thinking)


def with_mistake(written: Answer, rng: random.Random) -> tuple[GradedKernel, ...]:
    """Return an answer as a kernel of the best grade and, where an edit fits, the same with a mistake."""
    edited = mutated(written.source, rng)
    if edited is None:
        return (graded(written),)
    fault, source = edited
    mistake = GradedKernel(grade="mistake", fault=fault, source=source, thinking=written.thinking)
    return (graded(written), mistake)


def answered_problems(problems: Iterable[Problem]) -> Iterator[Generated]:
    """Yield the problems for which a kernel can be written, with it and a mistake in it.

    A kernel takes some 26 ms of one core; many problems are shared by a process on each core, which begins
    before the last problem is drawn.
    """
    problems = iter(problems)
    first = list(itertools.islice(problems, LEAST_SHARED))
    if len(first) < LEAST_SHARED:
        yield from filter(None, map(_answered, first))
        return
    with worker_processes(os.cpu_count() or 1) as processes:
        yield from filter(None, processes.map(_answered, itertools.chain(first, problems), chunksize=16))


def worker_processes(count: int) -> ProcessPoolExecutor:
    """Return processes that draw and answer problems.

    They are forked from one server that has imported the generator: each import takes seconds.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__])
    return ProcessPoolExecutor(count, context, torch.set_num_threads, (1,))


def _answered(problem: Problem) -> Generated | None:
    try:
        written, *_ = taught_answers(problem, on_meta=True)
    except Unreadable:
        return None
    kernels = with_mistake(written, random.Random(f"mistake {problem.sha256}"))
    return Generated(problem=problem, kernels=kernels)
