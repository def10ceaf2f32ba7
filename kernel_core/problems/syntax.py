"""Python text as a syntax tree, in processes of many threads."""

from __future__ import annotations

import ast
import symtable
import warnings
from collections.abc import Collection, Iterator

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


def globals_read(source: str, apart: Collection[str]) -> set[str]:
    """Names of a module that its classes and functions read, apart from functions of these names.

    Raises:
        SyntaxError: A scope of the text is not valid, as one with a parameter that is declared global.
    """
    top = symtable.symtable(source, "<problem>", "exec")
    scopes = [scope for scope in top.get_children() if scope.get_name() not in apart]
    return {name for scope in scopes for name in _globals_of(scope)}


def _globals_of(scope: symtable.SymbolTable) -> Iterator[str]:
    yield from (symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global())
    for child in scope.get_children():
        yield from _globals_of(child)
