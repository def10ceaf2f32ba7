"""A module rewritten so that its origin is hidden: names, order, constants.

Works on any module's syntax tree and knows nothing of how the corpus compares modules.
"""

from __future__ import annotations

import ast
import random

_KEPT = {
    "self",
    "super",
    "forward",
    "get_inputs",
    "get_init_inputs",
    "Model",
    "range",
    "len",
    "max",
    "min",
    "int",
    "float",
}


def paraphrase(source: str, rng: random.Random) -> str:
    """The module with its variables renamed, independent statements reordered and constants changed."""
    tree = ast.parse(source)
    _Constants(rng).visit(tree)
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        _reorder(function.body, rng)
    _Names(tree, rng).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def renamed(source: str, rng: random.Random) -> str:
    """The module with its variables renamed, and nothing else but its layout."""
    tree = ast.parse(source)
    _Names(tree, rng).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Constants(ast.NodeTransformer):
    """Sizes and coefficients become others; what indexes or switches (0, 1, -1, booleans) stays."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            return node
        if isinstance(node.value, int):
            return node if node.value <= 2 else ast.Constant(node.value * self._rng.choice((2, 3, 4)))
        return ast.Constant(round(node.value * self._rng.choice((0.5, 1.5, 2.0)), 12))


class _Names(ast.NodeTransformer):
    """Whatever the module binds itself: variables, arguments, attributes of `self`, module constants."""

    def __init__(self, tree: ast.Module, rng: random.Random) -> None:
        bound = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        }
        bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        attributes = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
        }
        self._names = {
            name: f"{rng.choice('abcdefgh')}_{rng.randrange(10**6)}" for name in sorted(bound - _KEPT)
        }
        self._attributes = {name: f"p_{rng.randrange(10**6)}" for name in sorted(attributes - _KEPT)}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self._names.get(node.arg, node.arg), None)

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        return ast.keyword(node.arg, self.visit(node.value))

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        name = self._attributes.get(node.attr, node.attr) if own else node.attr
        return ast.Attribute(self.visit(node.value), name, node.ctx)


def _reorder(body: list[ast.stmt], rng: random.Random) -> None:
    """Swap neighbouring assignments of which neither reads or writes what the other writes."""
    for _ in range(3):
        for index in range(len(body) - 1):
            if rng.random() < 0.6 and _independent(body[index], body[index + 1]):
                body[index], body[index + 1] = body[index + 1], body[index]


def _independent(one: ast.stmt, other: ast.stmt) -> bool:
    if not (isinstance(one, ast.Assign) and isinstance(other, ast.Assign)):
        return False
    return not (_written(one) & (_read(other) | _written(other)) or _written(other) & _read(one))


def _written(statement: ast.stmt) -> set[str]:
    return {
        ast.unparse(node)
        for node in ast.walk(statement)
        if _is_name(node) and not isinstance(node.ctx, ast.Load)
    }


def _read(statement: ast.stmt) -> set[str]:
    return {
        ast.unparse(node) for node in ast.walk(statement) if _is_name(node) and isinstance(node.ctx, ast.Load)
    }


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) or (
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    )
