"""Text of a reference for the embedding model: as it is, or under a line with its operators."""

from __future__ import annotations

from typing import Literal

from kernel_core.corpus.normalise import NotPython, fingerprint

TextKind = Literal["source", "described"]

_MAX_OPERATORS = 40


def text_for(kind: TextKind, text: str) -> str:
    """Return the text to embed. `described` puts operators and input shapes first; words stay as they are."""
    if kind == "source" or "def " not in text:
        return text
    try:
        parsed = fingerprint(text)
    except NotPython:
        return text
    operators = " ".join(parsed.operators[:_MAX_OPERATORS]) or "none"
    return f"operators: {operators}\ninputs: {' '.join(parsed.inputs) or 'unknown'}\n\n{text}"
