"""Fusion, the speed prior and diversity, by numbers; and the kinds of FAISS index."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.retrieval import vectors as vectors_module
from kernel_core.retrieval.ranking import diverse, fused, speed_prior
from kernel_core.retrieval.vectors import Kind, build_faiss, kind_for, search_faiss, vectors_of
from kernel_core.retrieval.words import WordIndex


def unit(count: int, dimension: int = 32, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_what_both_rankings_put_high_comes_first() -> None:
    scores = fused([[1, 2, 3], [2, 4, 1]])
    assert sorted(scores, key=lambda item: -scores[item]) == [2, 1, 4, 3]
    assert fused([[7], [7]]) == {7: 1.0}


@pytest.mark.parametrize(
    ("speedup", "prior"), [(None, 0.0), (0.5, 0.0), (1.0, 0.0), (8.0, 0.05), (100.0, 0.05)]
)
def test_only_a_verified_gain_is_preferred_and_not_without_bound(speedup: float | None, prior: float) -> None:
    assert speed_prior(speedup) == pytest.approx(prior)


def test_of_two_that_are_alike_the_second_gives_way_to_another() -> None:
    vectors = np.asarray([[1, 0], [0.999, 0.04], [0, 1]], np.float32)
    merits = np.asarray([0.9, 0.89, 0.7], np.float32)
    assert diverse(merits, vectors, 2, diversity=0.0) == [0, 1]
    assert diverse(merits, vectors, 2, diversity=0.3) == [0, 2]


@given(st.integers(1, 20), st.integers(1, 25), st.floats(0, 0.9))
def test_the_best_is_always_first_and_none_comes_twice(size: int, count: int, diversity: float) -> None:
    merits = np.random.default_rng(size).random(size).astype(np.float32)
    chosen = diverse(merits, unit(size), count, diversity)
    assert chosen[0] == int(merits.argmax()) and len(set(chosen)) == len(chosen) == min(size, count)


def test_the_kind_of_index_follows_the_number_of_vectors() -> None:
    assert [kind_for(count) for count in (10, 20_000, 48_777, 5_000_000)] == ["flat", "flat", "hnsw", "ivfpq"]


@pytest.mark.parametrize(
    ("kind", "recall"),
    [("flat", 1.0), ("hnsw", 0.98), pytest.param("ivfpq", 0.2, marks=pytest.mark.slow)],
)
def test_each_kind_finds_the_nearest_allowed_vectors(
    kind: Kind, recall: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors_module, "MAX_FLAT", 100)  # a graph is searched as a graph
    vectors, queries = unit(1000, 16), unit(20, 16, seed=1)
    index = build_faiss(vectors, kind)
    allowed = np.random.default_rng(2).random(1000) < 0.3
    exact = np.argsort(-np.where(allowed, queries @ vectors.T, -2.0), axis=1)[:, :10]
    _, rows = search_faiss(index, queries, 10, allowed)
    assert allowed[rows].all()
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(rows, exact, strict=True)]) >= recall
    few = np.zeros(1000, bool)
    few[[5, 77, 999]] = True
    assert set(search_faiss(index, queries[:1], 10, few)[1][0]) == {5, 77, 999}
    likeness = (vectors_of(index, np.asarray([5, 77])) * vectors[[5, 77]]).sum(axis=1)
    assert (likeness > (0.5 if kind == "ivfpq" else 0.9999)).all()


def test_words_that_are_rare_decide_and_what_shares_none_does_not_come() -> None:
    index = WordIndex.build(["torch relu", "torch relu softmax", "torch cumsum"])
    assert index.ranked("the softmax", 5, None) == [1]
    assert index.ranked("relu", 5, np.asarray([False, True, True])) == [1]
    assert index.ranked("nothing known", 5, None) == []
    read = WordIndex.from_bytes(index.to_bytes(), "words.npz")
    assert read.ranked("torch cumsum", 3, None) == index.ranked("torch cumsum", 3, None)
