"""Unit vectors under FAISS: exact, a graph or compressed, by how many there are; searched within a mask."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

import faiss
import numpy as np
import numpy.typing as npt

from kernel_core.retrieval.embed import Vectors

Kind = Literal["flat", "hnsw", "ivfpq"]
Mask = npt.NDArray[np.bool_]
"""Boolean mask of the rows that may be found."""

MAX_FLAT = 20_000
"""Vectors up to which exact search is fast enough on one core."""
MAX_HNSW = 1_000_000
"""Vectors up to which a graph fits (2 kB each); beyond that they are compressed."""

_HNSW_LINKS = 48
_HNSW_BUILD_BREADTH = 200
_HNSW_SEARCH_BREADTH = 512
_PQ_BYTES_SHARE = 4
"""Dimensions that one byte of a compressed vector stands for."""
_LISTS_PER_ROOT = 4
"""Inverted lists: so many times the square root of the number of vectors, as FAISS advises."""
_PROBED_SHARE = 16
"""Inverse share of the lists that a search visits."""


def kind_for(count: int) -> Kind:
    """Return the kind of index for so many vectors."""
    if count <= MAX_FLAT:
        return "flat"
    return "hnsw" if count <= MAX_HNSW else "ivfpq"


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit faiss and other users of OpenMP to one thread inside the block; torch keeps its number."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def build_faiss(vectors: Vectors, kind: Kind) -> faiss.Index:
    """Build an inner-product index over unit vectors, the same each time."""
    count, dimension = vectors.shape
    if kind == "flat":
        index: faiss.Index = faiss.IndexFlatIP(dimension)
    elif kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimension, _HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = _HNSW_BUILD_BREADTH
        index.hnsw.efSearch = _HNSW_SEARCH_BREADTH
    else:
        index = _compressed(count, dimension)
    with one_thread():  # links and centroids depend on the order in which threads insert
        if kind == "ivfpq":
            index.train(vectors)
        index.add(np.ascontiguousarray(vectors))
    return index


def _compressed(count: int, dimension: int) -> faiss.Index:
    lists = max(1, int(_LISTS_PER_ROOT * count**0.5))
    pieces = next(n for n in range(dimension // _PQ_BYTES_SHARE or 1, 0, -1) if dimension % n == 0)
    index = faiss.index_factory(dimension, f"IVF{lists},PQ{pieces}", faiss.METRIC_INNER_PRODUCT)
    faiss.extract_index_ivf(index).nprobe = max(1, lists // _PROBED_SHARE)
    return index


def search_faiss(
    index: faiss.Index, queries: Vectors, count: int, allowed: Mask | None = None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Scores and rows of the nearest allowed vectors, shape (queries, count), nearest first; row -1 is none.

    What is not allowed is left out before the search, not after. A graph loses its way when few of its
    nodes may be found, so few enough rows are searched exactly.
    """
    with one_thread():  # one query is too little work to share
        if allowed is None:
            scores, rows = index.search(queries, count)
        else:
            bits = np.packbits(allowed, bitorder="little")
            selector = faiss.IDSelectorBitmap(bits)  # type: ignore[call-arg, arg-type]
            num_allowed = int(allowed.sum())
            searched, parameters = _within(index, selector, num_allowed)
            scores, rows = searched.search(queries, min(count, max(1, num_allowed)), params=parameters)
    return scores, rows


def _within(index: faiss.Index, selector: faiss.IDSelector, num_allowed: int) -> tuple[Any, Any]:
    if isinstance(index, faiss.IndexIVFPQ):
        lists = index.nlist if num_allowed <= MAX_FLAT else index.nprobe
        return index, faiss.SearchParametersIVF(sel=selector, nprobe=lists)  # type: ignore[call-arg]
    if isinstance(index, faiss.IndexHNSWFlat):
        if num_allowed > MAX_FLAT:
            breadth = _HNSW_SEARCH_BREADTH
            return index, faiss.SearchParametersHNSW(sel=selector, efSearch=breadth)  # type: ignore[attr-defined]
        index = faiss.downcast_index(index.storage)
    return index, faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]


def vectors_of(index: faiss.Index, rows: npt.NDArray[np.int64]) -> Vectors:
    """Return the stored vectors of some rows; a compressed index returns its approximation."""
    if isinstance(index, faiss.IndexIVFPQ) and index.direct_map.no():
        index.make_direct_map()
    return (
        np.stack([index.reconstruct(int(row)) for row in rows]) if len(rows) else np.zeros((0, index.d), "f")
    )
