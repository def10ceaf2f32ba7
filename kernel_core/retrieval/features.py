"""What the offline embedder sees of a text: three bags of hashed features with their counts.

`operators`: the operators in order of evaluation and runs of two and three of them. `names`: the words that
the author's identifiers are made of. `characters`: runs of four characters, which catch what the others do
not know. A query in words gives the same three bags, its words read as operators ("layer norm" is
`layernorm`).
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from kernel_core.corpus.normalise import NotPython, fingerprint
from kernel_core.corpus.operators import operator_name

GROUPS = ("operators", "names", "characters")

_MAX_RUN = 3
_CHARACTERS = 4
_MAX_CHARACTERS = 8_000
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
# Words of every module: they tell none from another.
_BOILERPLATE = frozenset(
    (
        *("import", "torch", "nn", "functional", "class", "module", "model", "def", "init", "self"),
        *("super", "forward", "return", "get", "inputs", "randn", "rand", "the", "a", "of", "and"),
    )
)

Hashes = npt.NDArray[np.uint32]
Counts = npt.NDArray[np.float32]
Bag = tuple[Hashes, Counts]


def bags_of(text: str) -> tuple[Bag, Bag, Bag]:
    """The features of a module's source or of a query in words, one bag a group of `GROUPS`."""
    operators = reference_operators(text)
    if operators is None:
        words = [word.lower() for word in re.findall(r"\w+", text)]
        operators = [operator_name(run) for run in _runs(words, _MAX_RUN, "")]
    else:
        operators = list(_runs(operators, _MAX_RUN, " "))
    names = (word.lower() for word in _WORD.findall(text[:_MAX_CHARACTERS]))
    flat = re.sub(r"\s+", " ", text[:_MAX_CHARACTERS])
    characters = (flat[at : at + _CHARACTERS] for at in range(max(1, len(flat) - _CHARACTERS + 1)))
    return _bag(operators), _bag(word for word in names if word not in _BOILERPLATE), _bag(characters)


def reference_operators(text: str) -> Sequence[str] | None:
    """The operators of a module's source; None for words."""
    if "def " not in text:
        return None
    try:
        return fingerprint(text).operators
    except NotPython:
        return None


def _runs(words: Sequence[str], longest: int, joint: str) -> Iterator[str]:
    for length in range(1, longest + 1):
        for at in range(len(words) - length + 1):
            yield joint.join(words[at : at + length])


def _bag(features: Iterable[str]) -> Bag:
    counts = Counter(zlib.crc32(feature.encode("utf-8", "replace")) for feature in features)
    hashes = np.fromiter(counts, np.uint32, len(counts))
    return hashes, np.fromiter(counts.values(), np.float32, len(counts))
