"""Python text as a syntax tree, in processes of many threads, and the places of nodes in the text."""

from __future__ import annotations

import ast
import warnings

_TRIES = 20


def syntax_tree(source: str) -> ast.Module:
    """The tree of a module's text; warnings about the text are dropped.

    CPython 3.11 counts the depth of nodes in one place for all threads. A thread that parses while another is
    half done ends with SystemError, whatever the text; the next try counts anew.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: Python cannot parse the text.
    """
    for _ in range(_TRIES):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(source)
        except SystemError as error:
            if "recursion depth mismatch" not in str(error):
                raise
            mismatch = error
    raise mismatch


class Spans:
    """Byte offsets of nodes in their text, since Python counts columns in bytes."""

    def __init__(self, source: str) -> None:
        self.source = source.encode()
        self._starts = [0]
        for line in self.source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt | ast.arg) -> int:
        """The first byte of a node."""
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt | ast.arg) -> int:
        """The byte behind a node."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def between(self, first: ast.expr, last: ast.expr) -> bytes:
        """The text from one node to another."""
        return self.source[self.end(first) : self.start(last)]
