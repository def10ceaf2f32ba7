"""Python text as a syntax tree, in processes of many threads."""

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
