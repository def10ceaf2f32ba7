"""What of a reference a language model is shown: its text, or its text under a line of what it computes."""

from __future__ import annotations

from typing import Literal

from kernel_core.corpus.normalise import NotPython, fingerprint

TextKind = Literal["source", "described"]

_MAX_OPERATORS = 40


def text_for(kind: TextKind, text: str) -> str:
    """The text to embed. `described` puts operators and input shapes first; words stay as they are."""
    if kind == "source" or "def " not in text:
        return text
    try:
        parsed = fingerprint(text)
    except NotPython:
        return text
    operators = " ".join(parsed.operators[:_MAX_OPERATORS]) or "none"
    return f"operators: {operators}\ninputs: {' '.join(parsed.inputs) or 'unknown'}\n\n{text}"
