"""Chooses which products of an answer stay with torch's libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from kernel_core.generator.answer import Answer
from kernel_core.generator.read import CONVOLUTIONS, PRODUCTS, WEIGHTED, Unreadable
from kernel_core.generator.recorder import SMALL

_ATTENTION = "scaled_dot_product_attention"
LIBRARY_FIRST = (PRODUCTS, WEIGHTED, CONVOLUTIONS, frozenset[str]())
"""Functions that stay torch's, from most to none: cuBLAS and cuDNN are faster for most sizes."""
_MATRIX_PRODUCTS = PRODUCTS - CONVOLUTIONS - {_ATTENTION}
OWN_FIRST = (
    CONVOLUTIONS | {_ATTENTION} | {SMALL + function for function in _MATRIX_PRODUCTS},
    *LIBRARY_FIRST,
)
"""The same behind own matrix products: three in TF32 are as exact as cuBLAS's one of float32, and faster."""
_LAYERS = WEIGHTED | {SMALL + "linear"}
"""Those that stay torch's beside an attention."""
LEAST_SHARE = 0.015
"""Least share of the work for kernels; the judge refuses those that do less than a hundredth."""


def order_for(precision: str) -> Sequence[frozenset[str]]:
    """Return the order whose first answer is the fastest at a precision of float32 products."""
    return OWN_FIRST if precision == "tf32x3" else LIBRARY_FIRST


def first_with_work(
    write: Callable[[frozenset[str]], Answer], order: Sequence[frozenset[str]] = LIBRARY_FIRST
) -> Answer:
    """Return the first answer of an order that leaves work to its kernels.

    `write` takes the functions that stay torch's. A product so large that the kernels beside it do next to
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
        if _ATTENTION in library and _may_be_attention(written):
            with suppress(Unreadable):
                fused = write(library & _LAYERS)
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
    return _ATTENTION in steps or ("softmax" in steps and bool(steps & PRODUCTS))
