"""Embedders: a text to a unit vector. `offline` needs no download; any sentence-transformers model works."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kernel_core.errors import NotFound, SourceUnavailable
from kernel_core.retrieval.features import GROUPS, Bag, bags_of

OFFLINE = "offline"
MAX_TEXT_CHARS = 8_000
"""Most of a reference that a sentence-transformers model reads; its own limit is a few thousand tokens."""

Vectors = npt.NDArray[np.float32]
"""Shape (texts, dimension), every row of length 1."""

_NUM_BUCKETS = 1 << 14
_DIMENSIONS = (160, 128, 48, 48)
"""One number for each feature group, in the order of `GROUPS`."""
_WEIGHTS = (0.8, 0.5, 0.25, 0.2)
"""Share of each group in a vector's length: what is computed counts most."""
_MAX_FITTED = 5_000
_MIXERS = (np.uint32(0x9E3779B1), np.uint32(0x85EBCA77))


class Embedder(Protocol):
    """Texts to unit vectors; equal texts to equal vectors."""

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed each text as a unit vector, in order."""
        ...


class OfflineEmbedder:
    """Hashed features, weighted by how rare they are in the corpus, in `sum(_DIMENSIONS)` dimensions.

    Each feature adds its weight to two signed coordinates of its group (a count sketch), so that inner
    products of vectors estimate inner products of tf-idf bags.
    """

    def __init__(self, rarity: Vectors) -> None:
        """`rarity` holds the inverse document frequency by group and hash bucket, as `fit` gives it."""
        self.rarity = rarity

    @classmethod
    def fit(cls, texts: Sequence[str]) -> OfflineEmbedder:
        """Learn rarities from a corpus, or from an even sample of a large one."""
        sample = texts[:: max(1, len(texts) // _MAX_FITTED)]
        seen = np.zeros((len(GROUPS), _NUM_BUCKETS), np.float64)
        for text in sample:
            for group, (hashes, _) in enumerate(bags_of(text)):
                seen[group, np.unique(hashes % _NUM_BUCKETS)] += 1
        rarity = np.log((1 + len(sample)) / np.maximum(seen, 1)) + 0.1
        # A feature that no reference has cannot match; its weight would only dilute a query.
        return cls(np.where(seen > 0, rarity, 0.0).astype(np.float32))

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return sum(_DIMENSIONS)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed each text as a unit vector, in order."""
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            start = 0
            for group, bag in enumerate(bags_of(text)):
                end = start + _DIMENSIONS[group]
                vectors[row, start:end] = _WEIGHTS[group] * self._sketch(group, bag)
                start = end
        return _unit(vectors)

    def _sketch(self, group: int, bag: Bag) -> Vectors:
        hashes, counts = bag
        weights = (1 + np.log(counts)) * self.rarity[group, hashes % _NUM_BUCKETS]
        sketch = np.zeros(_DIMENSIONS[group], np.float64)
        with np.errstate(over="ignore"):
            for mixer in _MIXERS:
                mixed = hashes * mixer
                mixed ^= mixed >> np.uint32(16)
                sign = np.where(mixed & np.uint32(1), 1.0, -1.0)
                np.add.at(sketch, (mixed >> np.uint32(1)) % _DIMENSIONS[group], sign * weights)
        length = float(np.linalg.norm(sketch))
        return (sketch / length if length else sketch).astype(np.float32)


class SentenceTransformerEmbedder:
    """A sentence-transformers model by name or path."""

    def __init__(self, name: str, device: str, batch_size: int) -> None:
        self._model = _sentence_transformer(name, device)
        self._batch_size = batch_size

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self.embed(["x"]).shape[1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed each text as a unit vector, in order; each text is cut at `MAX_TEXT_CHARS`."""
        vectors = self._model.encode(  # type: ignore[attr-defined]
            [text[:MAX_TEXT_CHARS] for text in texts],
            batch_size=self._batch_size,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        return _unit(np.asarray(vectors, np.float32))


def _sentence_transformer(name: str, device: str) -> object:
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    path = Path(name).expanduser()
    if looks_like_path and not path.is_dir():
        raise NotFound(f"no embedding model in {name}; give its folder, a hub name, or embedder=offline")
    from sentence_transformers import SentenceTransformer

    try:
        return SentenceTransformer(str(path) if looks_like_path else name, device=device)
    except Exception as error:  # the hub client's transport, and so its errors, differ by version
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        kind = NotFound if looks_like_path else SourceUnavailable
        raise kind(
            f"could not load the embedding model {name}: {type(error).__name__}: {reason}; give the folder "
            "of a sentence-transformers model, go online for a hub name, or set embedder=offline"
        ) from error


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
