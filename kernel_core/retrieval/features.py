"""Features of a text for the offline embedder: four bags of hashed features with their counts.

`pattern`: how a kernel must move data, that is the operators that are not pointwise, their order among
(interchangeable) pointwise ones, and the inputs. `operators`: all operators in order of evaluation, and runs
of two and three. `names`: the words that identifiers are made of. `characters`: runs of four, which catch
what the others do not know. A query in words gives the same bags, its words read as operators ("layer norm"
is `layernorm`).
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from kernel_core.corpus.normalise import Fingerprint
from kernel_core.corpus.operators import POINTWISE, operator_name
from kernel_core.retrieval.reasons import module_fingerprint

GROUPS = ("pattern", "operators", "names", "characters")

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


def bags_of(text: str) -> tuple[Bag, Bag, Bag, Bag]:
    """Return the features of a module's source or of a query in words, one bag per group of `GROUPS`."""
    parsed = module_fingerprint(text)
    if parsed is None:
        words = [word.lower() for word in re.findall(r"\w+", text)]
        operators = [operator_name(run) for run in _runs(words, _MAX_RUN, "")]
        pattern = [word for word in operators if word not in POINTWISE]
    else:
        operators = list(_runs(parsed.operators, _MAX_RUN, " "))
        pattern = list(_pattern(parsed))
    names = (word.lower() for word in _WORD.findall(text[:_MAX_CHARACTERS]))
    flat = re.sub(r"\s+", " ", text[:_MAX_CHARACTERS])
    characters = (flat[at : at + _CHARACTERS] for at in range(max(1, len(flat) - _CHARACTERS + 1)))
    bags = (pattern, operators, (word for word in names if word not in _BOILERPLATE), characters)
    return _bag(bags[0]), _bag(bags[1]), _bag(bags[2]), _bag(bags[3])


def _pattern(parsed: Fingerprint) -> Iterator[str]:
    shaping = [name for name in parsed.operators if name not in POINTWISE]
    yield from shaping
    steps = ["~" if name in POINTWISE else name for name in parsed.operators]
    collapsed = [
        name for name, before in zip(steps, [None, *steps], strict=False) if (name, before) != ("~", "~")
    ]
    yield from _runs(collapsed, _MAX_RUN, " ")
    yield f"inputs {' '.join(parsed.inputs)}"
    yield f"{len(parsed.inputs)} inputs"
    yield "only pointwise" if not shaping else "not only pointwise"


def _runs(words: Sequence[str], longest: int, joint: str) -> Iterator[str]:
    for length in range(1, longest + 1):
        for at in range(len(words) - length + 1):
            yield joint.join(words[at : at + length])


def _bag(features: Iterable[str]) -> Bag:
    counts = Counter(zlib.crc32(feature.encode("utf-8", "replace")) for feature in features)
    hashes = np.fromiter(counts, np.uint32, len(counts))
    return hashes, np.fromiter(counts.values(), np.float32, len(counts))
