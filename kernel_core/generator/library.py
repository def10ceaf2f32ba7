"""Chooses which products of an answer stay with torch's libraries."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from kernel_core.generator.answer import Answer
from kernel_core.generator.read import CONVOLUTIONS, PRODUCTS, WEIGHTED, Unreadable

_ORDER = (PRODUCTS, WEIGHTED, CONVOLUTIONS, frozenset[str]())
"""Functions that stay torch's, from most to none."""
LEAST_SHARE = 0.015
"""Least share of the work for kernels; the judge refuses those that do less than a hundredth."""


def with_most_products_left(write: Callable[[frozenset[str]], Answer]) -> Answer:
    """Return an answer that leaves as many products to torch as still leave work to its kernels.

    cuBLAS and cuDNN are faster than Triton's products for most sizes. A product so large that the kernels
    beside it do next to nothing is written with them. An attention that a single kernel
    computes is written all the same. `write` takes the functions that stay torch's. Raises Unreadable as
    `write` does.
    """
    refusals: list[Unreadable] = []
    idle: list[Answer] = []
    for library in _ORDER:
        try:
            written = write(library)
        except Unreadable as error:
            refusals.append(error)
            continue
        if library is PRODUCTS and _may_be_attention(written):
            with suppress(Unreadable):
                fused = write(WEIGHTED)
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
    return "scaled_dot_product_attention" in steps or ("softmax" in steps and bool(steps & PRODUCTS))
