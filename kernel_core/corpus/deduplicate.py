"""Exact and near duplicates.

Exact: the same reference (by hash) with the same kernel (by hash).

Near: two kernels that are as alike as the threshold asks, with references that are as alike. Found kernels
are compared without their names and numbers. Only rows of one *bucket* are ever compared, and the bucket
decides what may be lost. A row with a grade comes from a generator, which writes several kernels for one
problem, and many problems from one template. Its bucket is its own reference and its own grade, so that
neither a mistake next to its correct twin nor a sibling of the same template goes. A found row's bucket is
its operators, the dimensions that they work along, its language and its claim: two modules that apply
different operators are never one, however alike their texts. References are alike when the same data flows
through them, or when they apply the same operators in the same order and their shingles are alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from kernel_core.corpus.extension_form import cuda_of
from kernel_core.corpus.normalise import Fingerprint
from kernel_core.corpus.shingles import Shingles, code_tokens, erased_tokens, jaccard, shingles_of
from kernel_core.records import Exemplar

_NUM_PERMUTATIONS = 64
_CANDIDATE_MARGIN = 0.1
"""MinHash proposes pairs somewhat below the threshold; the exact similarity decides."""

Drop = Callable[[Exemplar, str, str], None]
"""Told of each dropped row: the row, the reason, what it equals."""


def without_exact_duplicates(exemplars: Sequence[Exemplar], drop: Drop) -> list[Exemplar]:
    """The best row of each pair of reference and kernel, in the order given."""
    best: dict[tuple[str, str], Exemplar] = {}
    for exemplar in exemplars:
        key = (exemplar.reference_hash, exemplar.kernel_hash)
        if key not in best or _rank(exemplar) < _rank(best[key]):
            best[key] = exemplar
    result = []
    for exemplar in exemplars:
        twin = best[exemplar.reference_hash, exemplar.kernel_hash]
        if exemplar is twin:
            result.append(exemplar)
        else:
            drop(exemplar, "exact duplicate", twin.id)
    return result


def without_near_duplicates(
    exemplars: Sequence[Exemplar], fingerprints: dict[str, Fingerprint], threshold: float, drop: Drop
) -> list[Exemplar]:
    """The rows without those nearly equal to a better one of their bucket, in the order given.

    `fingerprints` maps reference hashes; `threshold` is a Jaccard similarity of shingles.
    """
    buckets: dict[tuple[object, ...], list[Exemplar]] = defaultdict(list)
    for exemplar in exemplars:
        buckets[_bucket(exemplar, fingerprints)].append(exemplar)
    crowded = [sorted(rows, key=_rank) for rows in buckets.values() if len(rows) > 1]
    lost: set[str] = set()
    for loser, winner in _near_pairs(crowded, fingerprints, threshold):
        lost.add(loser.id)
        drop(loser, "near duplicate", winner.id)
    return [exemplar for exemplar in exemplars if exemplar.id not in lost]


def _bucket(exemplar: Exemplar, fingerprints: dict[str, Fingerprint]) -> tuple[object, ...]:
    if exemplar.grade:
        return (exemplar.reference_hash, exemplar.grade)
    identity = fingerprints[exemplar.reference_hash]
    operators, axes = tuple(sorted(identity.operators)), tuple(sorted(identity.axes))
    return (operators, axes, exemplar.language, exemplar.claimed_correct)


def _near_pairs(
    buckets: Sequence[Sequence[Exemplar]], fingerprints: dict[str, Fingerprint], threshold: float
) -> Iterator[tuple[Exemplar, Exemplar]]:
    """Each row that is lost and the better row of its bucket that it nearly equals."""
    if not buckets:
        return
    from datasketch import MinHash, MinHashLSH  # seconds to import, and the generator's rows never need it

    proposing = MinHashLSH(max(0.1, threshold - _CANDIDATE_MARGIN), num_perm=_NUM_PERMUTATIONS)
    bands = (proposing.b, proposing.r)  # found by numerical integration: once is enough
    for rows in buckets:
        index = MinHashLSH(num_perm=_NUM_PERMUTATIONS, params=bands)
        kept: list[tuple[Exemplar, Shingles]] = []
        for row in rows:
            shingles = shingles_of(_tokens(row))
            sketch = MinHash(num_perm=_NUM_PERMUTATIONS, hashfunc=int)
            sketch.update_batch(shingles.tolist())
            own = fingerprints[row.reference_hash]
            candidates = (kept[position] for position in sorted(index.query(sketch)))
            near = (other for other, theirs in candidates if jaccard(shingles, theirs) >= threshold)
            alike = (other for other in near if _alike(own, fingerprints[other.reference_hash], threshold))
            winner = next(alike, None)
            if winner is None:
                index.insert(len(kept), sketch)
                kept.append((row, shingles))
            else:
                yield row, winner


def _tokens(row: Exemplar) -> list[str]:
    # A graded kernel differs on purpose, if only in a number; a found one is the same in other words.
    # The module around an extension is the same for all kernels of a task.
    code = cuda_of(row.kernel_code) if row.language == "cuda_cpp" else row.kernel_code
    return (code_tokens if row.grade else erased_tokens)(code, row.language)


def _alike(first: Fingerprint, second: Fingerprint, threshold: float) -> bool:
    if first.dataflow == second.dataflow:
        return True
    return first.operators == second.operators and jaccard(first.shingles, second.shingles) >= threshold


def _rank(exemplar: Exemplar) -> tuple[bool, float]:
    """Smaller is better: claimed correct first, then the faster claim; ties keep their order."""
    speedup = exemplar.claimed_speedup if exemplar.claimed_speedup is not None else -np.inf
    return (exemplar.claimed_correct is not True, -speedup)
