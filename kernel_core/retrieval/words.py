"""BM25 over the words of references: what a dense vector blurs, such as a rare operator's name."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType

import numpy as np
import numpy.typing as npt

from kernel_core.corpus.normalise import NotPython, fingerprint
from kernel_core.corpus.operators import operator_name
from kernel_core.errors import Corrupt


@contextlib.contextmanager
def _without(name: str) -> Iterator[None]:
    """Imports behave as if a module were not installed."""
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    kept = modules.get(name)
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]
        if kept is not None:
            modules[name] = kept


# On import bm25s runs JAX where it is installed, which reserves three quarters of a GPU's memory.
with _without("jax"):
    import bm25s
    from bm25s.tokenization import Tokenized

_MAX_CHARS = 8_000
_COMMON_SHARE = 0.3
"""Maximal share of texts with a word: a more common word distinguishes little and takes most of the time."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_ARRAYS = ("data", "indices", "indptr")


def words_of(text: str) -> list[str]:
    """Return a module's operators, alone and in pairs, and the words of its names; for a query, its words."""
    names = [word.lower() for word in _WORD.findall(text[:_MAX_CHARS])]
    try:
        parsed = fingerprint(text) if "def " in text else None
    except NotPython:
        parsed = None
    if parsed is None:
        spoken = re.findall(r"\w+", text[:_MAX_CHARS].lower())
        pairs = ("".join(pair) for pair in itertools.pairwise(spoken))
        return [*names, *(f"op:{operator_name(word)}" for word in (*spoken, *pairs))]
    pairs = (" ".join(pair) for pair in itertools.pairwise(parsed.operators))
    return [*names, *(f"op:{name}" for name in (*parsed.operators, *pairs)), f"in:{' '.join(parsed.inputs)}"]


class WordIndex:
    """BM25 scores of a query against every text."""

    def __init__(self, bm25: bm25s.BM25) -> None:
        self._bm25 = bm25

    @classmethod
    def build(cls, texts: Sequence[str]) -> WordIndex:
        """Index the words of these texts."""
        word_lists = [words_of(text) for text in texts]
        # Numbered here: the library numbers words in the order of a set, another one each time.
        vocabulary = {
            word: at for at, word in enumerate(sorted({word for words in word_lists for word in words}))
        }
        tokens = Tokenized(
            ids=[[vocabulary[word] for word in words] for words in word_lists], vocab=vocabulary
        )
        bm25 = bm25s.BM25()
        bm25.index(tokens, create_empty_token=False, show_progress=False)
        return cls(bm25)

    def ranked(self, text: str, count: int, allowed: npt.NDArray[np.bool_] | None) -> list[int]:
        """Return the rows that match best, at most `count`; a row that shares no word is not among them."""
        known = [word for word in words_of(text) if word in self._bm25.vocab_dict]
        telling = [word for word in known if self._share(word) <= _COMMON_SHARE] or known
        if not telling:
            return []
        scores = self._bm25.get_scores(telling)
        if allowed is not None:
            scores = np.where(allowed, scores, 0.0)
        best = np.argpartition(-scores, min(count, len(scores) - 1))[:count]
        best = best[np.lexsort((best, -scores[best]))]
        return [int(row) for row in best if scores[row] > 0]

    def _share(self, word: str) -> float:
        """Share of the texts that have a word."""
        at, ends = self._bm25.vocab_dict[word], self._bm25.scores["indptr"]
        return float(ends[at + 1] - ends[at]) / int(self._bm25.scores["num_docs"])

    def to_bytes(self) -> bytes:
        """Return the index as an `.npz` file, without pickles."""
        buffer = io.BytesIO()
        vocabulary = np.frombuffer(json.dumps(self._bm25.vocab_dict).encode(), np.uint8)
        arrays = {name: self._bm25.scores[name] for name in _ARRAYS}
        np.savez(buffer, vocabulary=vocabulary, num_docs=self._bm25.scores["num_docs"], **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> WordIndex:
        """Read the bytes that `to_bytes` returned. Raises `Corrupt` for anything else."""
        bm25 = bm25s.BM25()
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                bm25.scores = {name: arrays[name] for name in _ARRAYS}
                bm25.scores["num_docs"] = int(arrays["num_docs"])
                bm25.nonoccurrence_array = None  # what `index` leaves with the default method
                bm25.vocab_dict = json.loads(arrays["vocabulary"].tobytes())
        except (ValueError, KeyError, OSError) as error:
            raise Corrupt(f"{where} holds no word index: {error}; run `dojo index` again") from error
        return cls(bm25)
