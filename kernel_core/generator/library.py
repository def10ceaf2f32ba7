"""Chooses which products of an answer stay with torch's libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from kernel_core.generator.answer import Answer
from kernel_core.generator.library_calls import (
    ATTENTION,
    CONVOLUTIONS,
    MATRIX_PRODUCTS,
    NO_CALLS,
    PRODUCTS,
    WEIGHTED,
    LibraryCalls,
)
from kernel_core.generator.recorder import Unreadable

LIBRARY_FIRST = (*map(LibraryCalls, (PRODUCTS, WEIGHTED, CONVOLUTIONS)), NO_CALLS)
"""Calls that stay torch's, from most to none: cuBLAS and cuDNN are faster for most sizes."""
OWN_FIRST = (LibraryCalls(CONVOLUTIONS | {ATTENTION}, small=MATRIX_PRODUCTS), *LIBRARY_FIRST)
"""The same behind own matrix products: three in TF32 are as exact as cuBLAS's one of float32, and faster."""
LEAST_SHARE = 0.015
"""Least share of the work for kernels; the judge refuses those that do less than a hundredth."""


def order_for(precision: str) -> Sequence[LibraryCalls]:
    """Return the order whose first answer is the fastest at a precision of float32 products."""
    return OWN_FIRST if precision == "tf32x3" else LIBRARY_FIRST


def first_with_work(
    write: Callable[[LibraryCalls], Answer], order: Sequence[LibraryCalls] = LIBRARY_FIRST
) -> Answer:
    """Return the first answer of an order that leaves work to its kernels.

    `write` takes the calls that stay torch's. A product so large that the kernels beside it do next to
    nothing is written with them. An attention that a single kernel computes is written all the same. Raises
    Unreadable as `write` does.
    """
    refusals: list[Unreadable] = []
    idle: list[Answer] = []
    for library in order:
        try:
            written = write(library)
        except Unreadable as error:
            refusals.append(error)
            continue
        if ATTENTION in library.functions and _may_be_attention(written):
            with suppress(Unreadable):
                fused = write(library.of_weights())
                if "attention" in fused.kinds:
                    return fused
        if written.own_share >= LEAST_SHARE:
            return written
        idle.append(written)
    if idle:
        return idle[0]
    raise refusals[-1]


def _may_be_attention(written: Answer) -> bool:
    steps = set(written.steps.split(", "))
    return ATTENTION in steps or ("softmax" in steps and bool(steps & PRODUCTS))
