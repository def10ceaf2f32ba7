"""Lexical tokens of code, hashed runs of them (shingles), and how alike two sets of shingles are."""

from __future__ import annotations

import keyword
import re
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Shingles = npt.NDArray[np.uint32]
"""Sorted, distinct hashes."""

SHINGLE_TOKENS = 5

_PYTHON = re.compile(
    r"""(?P<comment>\#[^\n]*)|(?P<indent>\n[ \t]*(?=[^\s\#]))|[rbfuRBFU]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3})"""
    r"""|[rbfuRBFU]{0,2}(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|\w+|[^\w\s]""",
    re.DOTALL,
)
_CUDA = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\w+|[^\w\s]""", re.DOTALL
)
_WORD = re.compile(r"[A-Za-z_]")
_CUDA_WORDS = (
    *("int", "float", "double", "half", "bool", "char", "void", "unsigned", "long", "auto", "const"),
    *("static", "struct", "template", "typename", "constexpr", "inline", "switch", "case", "do", "sizeof"),
    *("define", "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "dim3"),
    *("float2", "float4", "half2"),
    *("max", "min", "range", "len", "sum", "abs", "pragma", "unroll", "include", r"__\w+", r"atomic\w+"),
    *("(?:exp|log|sqrt|rsqrt|tanh|erf|pow|fabs|fmax|fmin|sin|cos|floor)f?",),
)
_LIBRARY_WORD = re.compile("|".join((*keyword.kwlist, *_CUDA_WORDS)))
_MEMBER_MARKS = (".", ":", ">")
"""The last character of `.`, `::` and `->`; tokens are single characters where they are not words."""
_MULTIPLIER = np.uint32(0x9E3779B1)


def code_tokens(source: str, language: str) -> list[str]:
    """Tokens without comments and spacing; in Python a line's indentation is a token, for it has meaning."""
    if language == "cuda_cpp":
        return [match.group() for match in _CUDA.finditer(source) if not match.group("comment")]
    matches = _PYTHON.finditer(f"\n{source}")
    return [match.group() for match in matches if not match.group("comment")]


def erased_tokens(source: str, language: str) -> list[str]:
    """As `code_tokens`, with what an author chooses erased: names become `v`, numbers `0`.

    Words of the language and of libraries stay: keywords, intrinsics, and whatever follows a dot or `::`,
    unless it is an attribute of `self`.
    """
    erased: list[str] = []
    before, owner = "", ""
    for token in code_tokens(source, language):
        if token[0].isdigit():
            erased.append("0")
        elif _WORD.match(token) and token[-1] not in "\"'":
            is_member = before in _MEMBER_MARKS and owner != "self"
            erased.append(token if is_member or _LIBRARY_WORD.fullmatch(token) else "v")
        else:
            erased.append(token)
        owner = before if token in _MEMBER_MARKS else owner
        before = token
    return erased


def shingles_of(tokens: Sequence[str]) -> Shingles:
    """Hashes of every run of `SHINGLE_TOKENS` tokens; a shorter text is one shingle."""
    hashes = np.fromiter((zlib.crc32(token.encode("utf-8", "replace")) for token in tokens), np.uint32)
    num_runs = max(1, len(hashes) - SHINGLE_TOKENS + 1)
    runs = np.zeros(num_runs, np.uint32)
    with np.errstate(over="ignore"):
        for offset in range(min(SHINGLE_TOKENS, len(hashes))):
            runs = runs * _MULTIPLIER + hashes[offset : offset + num_runs] + np.uint32(offset)
            runs ^= runs >> np.uint32(15)
    return np.unique(runs)


def jaccard(first: Shingles, second: Shingles) -> float:
    """Shared shingles over all shingles, in [0, 1]."""
    shared = len(np.intersect1d(first, second, assume_unique=True))
    return shared / max(1, len(first) + len(second) - shared)
