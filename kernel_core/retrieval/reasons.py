"""Reasons for showing an exemplar: shared features of the two texts, and known facts about the kernel."""

from __future__ import annotations

from kernel_core.corpus.normalise import Fingerprint, NotPython, fingerprint
from kernel_core.records import Exemplar, Verdict

_MAX_NAMED = 6


def reasons_for(query: str, exemplar: Exemplar) -> list[str]:
    """Return the features shared with the query, then the known correctness and speed of the kernel."""
    return [*_shared(query, exemplar), *_known(exemplar)]


def module_fingerprint(text: str) -> Fingerprint | None:
    """Return the fingerprint of a text that is a module; None for words."""
    if "def " not in text:
        return None
    try:
        return fingerprint(text)
    except NotPython:
        return None


def _shared(query: str, exemplar: Exemplar) -> list[str]:
    own, its = module_fingerprint(query), module_fingerprint(exemplar.reference_code)
    if own is None or its is None:
        return []
    if own.dataflow == its.dataflow:
        return ["the same computation at other sizes"]
    names = [name for name in dict.fromkeys(its.operators) if name in own.operators]
    return [f"applies {', '.join(names[:_MAX_NAMED])} too"] if names else []


def _known(exemplar: Exemplar) -> list[str]:
    known = []
    if exemplar.verified is Verdict.CORRECT:
        known.append("our judge found it correct")
    elif exemplar.claimed_correct:
        known.append("its maker found it correct")
    if exemplar.verified_speedup is not None:
        known.append(f"our judge measured {exemplar.verified_speedup:.2g}x")
    elif exemplar.predicted_speedup is not None:
        known.append(f"our judge predicts {exemplar.predicted_speedup:.2g}x")
    elif exemplar.claimed_speedup is not None:
        known.append(f"its maker measured {exemplar.claimed_speedup:.2g}x")
    return known
