"""Hashes of a reference's canonical tokens, independent of the names its author chose.

Two modules get the same `reference_hash` when they differ only in names, comments, docstrings,
annotations, import style and where a size constant is written. `structure_hash` also ignores every
number, so that the same module at other sizes is recognised. The tokens depend on the syntax tree alone
and skip the fields that differ between Python versions: an index built on 3.11 excludes on 3.13.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from kernel_core.corpus.canonical import canonical_tree
from kernel_core.corpus.dataflow import dataflow_of
from kernel_core.corpus.operators import axes_of, inputs_of, operators_of
from kernel_core.corpus.shingles import code_tokens, shingles_of
from kernel_core.problems.syntax import syntax_tree

NORMALISER_VERSION = "1"
"""Changes whenever a hash does: snapshots and indexes of another version are not comparable."""

_SKIPPED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores", "type_params", "lineno"})
_NUMBER = "0"
_NAME = "v"


class NotPython(ValueError):
    """The text is not a Python module that can be normalised."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A reference's computation, as hashes and as the tokens that other modules compare."""

    reference_hash: str
    """Equal for modules that differ only in names, comments and spelling."""
    structure_hash: str
    """As `reference_hash`, blind to every number: the same computation at any size."""
    operators: tuple[str, ...]
    """In order of evaluation, however they are spelt."""
    dataflow: str
    """As `structure_hash`, blind to temporaries and to the order of independent statements as well."""
    axes: tuple[str, ...]
    """The dimensions that the operators work along."""
    inputs: tuple[str, ...]
    """Each input's constructor and number of dimensions: `randn2`."""
    shingles: npt.NDArray[np.uint32]
    """Hashes of runs of tokens, names and numbers erased: stable when statements change places."""


@lru_cache(maxsize=1 << 17)  # each step asks for the same references again, in the same order: keep them all
def fingerprint(source: str) -> Fingerprint:
    """The fingerprint of a reference module. Raises `NotPython`."""
    try:
        tree = canonical_tree(syntax_tree(source))
        tokens = list(_tokens(tree))
        dataflow = dataflow_of(tree)
        operators, axes, inputs = operators_of(tree), axes_of(tree), inputs_of(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotPython(f"{type(error).__name__}: {error}") from error
    numberless = [_NUMBER if token.startswith("#") else token for token in tokens]
    nameless = [_NAME if token[:1] in "@." and token[1:].isdigit() else token for token in numberless]
    return Fingerprint(
        reference_hash=hash_tokens(tokens),
        structure_hash=hash_tokens(numberless),
        operators=operators,
        dataflow=dataflow,
        axes=axes,
        inputs=inputs,
        shingles=shingles_of(nameless),
    )


def reference_hash(source: str) -> str:
    """Hex SHA-256 of a module's canonical tokens with its constants; names and comments do not count.

    Raises `NotPython`.
    """
    return fingerprint(source).reference_hash


def kernel_hash(source: str, language: str) -> str:
    """Hex SHA-256 of a kernel's tokens: comments, blank lines and spacing do not count, names do."""
    return hash_tokens(code_tokens(source, language))


def hash_tokens(tokens: list[str]) -> str:
    """Hex SHA-256 of a token list."""
    return hashlib.sha256("\x1f".join(tokens).encode("utf-8", "surrogatepass")).hexdigest()


def _tokens(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield _constant(node.value)
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and _is_number(node.operand):
        yield f"#-{node.operand.value!r}"  # type: ignore[attr-defined]
        return
    if isinstance(node, ast.Name):
        yield node.id
        return
    yield f"{type(node).__name__}("
    for field, value in ast.iter_fields(node):
        if field in _SKIPPED_FIELDS or value is None or value == []:
            continue
        yield f"{field}="
        if isinstance(value, ast.AST):
            yield from _tokens(value)
        elif isinstance(value, list):
            for item in value:
                yield from _tokens(item) if isinstance(item, ast.AST) else (str(item),)
        else:
            yield str(value)
    yield ")"


def _constant(value: object) -> str:
    is_number = isinstance(value, int | float | complex) and not isinstance(value, bool)
    return f"#{value!r}" if is_number else repr(value)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and _constant(node.value).startswith("#")
