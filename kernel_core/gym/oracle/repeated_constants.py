"""Constants of a problem that a candidate's module repeats, at the sizes of a run.

A `Model` that reads `DIM` of its module is answered by a module with the same `DIM = 4096`. Where the judge
runs at other sizes, both have to change.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping

from kernel_core.problems.source import replace_constants
from kernel_core.problems.syntax import syntax_tree
from kernel_core.records import Constant, Problem


def at_sizes(source: str, problem: Problem, sizes: Mapping[str, Constant]) -> str:
    """Return a candidate's text with the constants at `sizes` that `Model` reads and the text repeats.

    A constant of the same name with another value stays, and so does a text that is not Python.
    """
    changed = {
        name: sizes[name]
        for name in read_by_classes(problem.source)
        if name in sizes and sizes[name] != problem.constants.get(name)
    }
    if not changed:
        return source
    try:
        return replace_constants(source, changed, known=problem.constants)
    except (SyntaxError, ValueError, RecursionError):
        return source


@functools.lru_cache(maxsize=256)
def read_by_classes(source: str) -> frozenset[str]:
    """Return the names of the module that its classes read: names that no function around them binds."""
    classes = [node for node in syntax_tree(source).body if isinstance(node, ast.ClassDef)]
    return frozenset(name for node in classes for name in _free_names(node, frozenset()))


def _free_names(node: ast.AST, bound: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        arguments = [part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)]
        stored = [
            part.id
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        ]
        bound |= {*arguments, *stored}
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound:
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _free_names(child, bound)
