"""Graded kernels for a problem of any source, as a corpus has them."""

from __future__ import annotations

from kernel_core.errors import NotAProblem
from kernel_core.generator.answer import answer
from kernel_core.generator.read import PRODUCTS, Unreadable
from kernel_core.problems.graded import GradedKernel
from kernel_core.records import Problem


def graded_kernels(problem: Problem) -> list[GradedKernel]:
    """Return an answer with kernels for all of a module, and one that leaves matrix products to torch.

    Raises `NotAProblem` with the reason where no kernel can be written.
    """
    kernels: dict[str, GradedKernel] = {}
    reasons = []
    for library in (frozenset[str](), PRODUCTS):
        try:
            written = answer(problem, library=library)
        except Unreadable as error:
            reasons.append(str(error))
        else:
            kernel = GradedKernel(grade="fused", source=written.source, thinking=written.thinking)
            kernels.setdefault(kernel.source, kernel)
    if not kernels:
        raise NotAProblem(f"no kernel can be written for it: {reasons[0]}")
    return list(kernels.values())
