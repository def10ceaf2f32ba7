"""Literals of a text as numbers that keep their expression, such as `1 - 0.8` and `1 / math.sqrt(64)`."""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Iterator
from typing import Any

from kernel_core.generator.sizes import ATOM, PRODUCT, SUM, Number

_NUMBER = "__number__"
_PLAIN = ("__init__", "get_inputs", "get_init_inputs")
"""Functions whose numbers become attributes and sizes, which have texts of their own."""


def with_literals(tree: ast.Module) -> ast.Module:
    """Return a copy of a text with a `Number` for each literal outside constructors.

    It needs the names of `namespace`. Whole numbers stay: they are axes more often than factors.
    """
    return ast.fix_missing_locations(_Literals().visit(copy.deepcopy(tree)))


def namespace() -> dict[str, Any]:
    """Return what a text of `with_literals` calls."""
    return {_NUMBER: Number}


class _Literals(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node if node.name in _PLAIN else self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit(self, node: ast.AST) -> Any:
        value = _value(node) if isinstance(node, ast.expr) else None
        if not isinstance(value, float) or not math.isfinite(value):
            return super().visit(node)
        text = repr(value) if isinstance(node, ast.Constant) else ast.unparse(node)
        is_sum = isinstance(node, ast.UnaryOp) or isinstance(getattr(node, "op", None), ast.Add | ast.Sub)
        binds = SUM if is_sum else PRODUCT if isinstance(node, ast.BinOp) else ATOM
        given: list[ast.expr] = [ast.Constant(value), ast.Constant(text), ast.Constant(binds)]
        return ast.Call(ast.Name(_NUMBER, ast.Load()), given, [])


def _value(node: ast.AST) -> Any:
    """Value of an expression of numbers and of `math`; None for any other one."""
    parts = list(_leaves(node))
    if not parts or not all(isinstance(part, int | float) for part in parts):
        return None
    try:
        return eval(compile(ast.Expression(node), "literal", "eval"), {"math": math})  # type: ignore[arg-type]
    except (ArithmeticError, TypeError, ValueError):
        return None


def _leaves(node: ast.AST) -> Iterator[Any]:
    """Values at the ends of an expression; None where it has what is no arithmetic."""
    if isinstance(node, ast.Constant):
        yield None if isinstance(node.value, bool) else node.value
    elif isinstance(node, ast.UnaryOp):
        yield from _leaves(node.operand)
    elif isinstance(node, ast.BinOp):
        yield from _leaves(node.left)
        yield from _leaves(node.right)
    elif isinstance(node, ast.Call) and not node.keywords and _is_of_math(node.func):
        for argument in node.args:
            yield from _leaves(argument)
    else:
        yield (
            getattr(math, node.attr, None) if isinstance(node, ast.Attribute) and _is_of_math(node) else None
        )


def _is_of_math(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "math"
