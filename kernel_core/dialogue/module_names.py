"""Names that a module's text binds, and those that it uses and binds nowhere."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from kernel_core.problems.syntax import syntax_tree


def tree_of(source: str) -> ast.Module | None:
    """Return the tree of a module's text; None where Python cannot parse it, or where it is empty."""
    try:
        return syntax_tree(source) if source else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def defined(tree: ast.Module | None) -> set[str]:
    """Return the names that a module binds in its own scope."""
    names: set[str] = set()
    for node in _statements(tree) if tree else ():
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {
                    name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
                }
    return names


def missing(tree: ast.Module | None) -> set[str]:
    """Return the names that a module uses and binds nowhere."""
    used, bound = set(), defined(tree) | set(dir(builtins))
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                bound |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
    return used - bound


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module's scope, also under conditions and in `try`."""
    for inner in ast.iter_child_nodes(node):
        yield inner
        if isinstance(inner, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _statements(inner)
