"""Tuples of sizes that evaluation problems have, as digests: training draws none of them.

`data/kernelbench_sizes.txt` holds the digests and no size, so the generator gives the same problems with and
without a checkout of KernelBench. `benchmarks/kernelbench_sizes.py` writes it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable

from kernel_core.data_folder import DATA
from kernel_core.records import Constant, Problem

SIZES_FILE = DATA / "kernelbench_sizes.txt"
FEWEST_SIZES = 2
"""One size alone says nothing about its problem."""


def size_tuple(constants: Iterable[Constant]) -> tuple[int, ...]:
    """The whole numbers among module-level constants, in order; empty below `FEWEST_SIZES` of them."""
    sizes = sorted(value for value in constants if type(value) is int)
    return tuple(sizes) if len(sizes) >= FEWEST_SIZES else ()


def size_digest(sizes: tuple[int, ...]) -> str:
    """Digest of a size tuple, as the file holds it."""
    return hashlib.blake2b(",".join(map(str, sizes)).encode(), digest_size=8).hexdigest()


def size_digests(problems: Iterable[Problem]) -> list[str]:
    """The digests of some problems' sizes, each once and sorted."""
    tuples = {size_tuple(problem.constants.values()) for problem in problems}
    return sorted(size_digest(sizes) for sizes in tuples - {()})


def has_evaluation_sizes(constants: Iterable[Constant]) -> bool:
    """True if a KernelBench problem has the same sizes."""
    sizes = size_tuple(constants)
    return bool(sizes) and size_digest(sizes) in _known()


@functools.cache
def _known() -> frozenset[str]:
    lines = SIZES_FILE.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))
