"""faiss on one thread, without taking torch's threads away: the two share an OpenMP runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import faiss


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit faiss and other users of OpenMP to one thread inside the block."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
