"""Simplifies the body of a compiled kernel: numbers, copies and values used once go where they are used."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

_Node = TypeVar("_Node", bound=ast.AST)
_LONGEST_INLINED = 60
"""Characters of an expression that is written into the one place that uses it."""


def simplified(body: Sequence[ast.stmt], sizes: frozenset[str]) -> list[ast.stmt]:
    """The same statements with fewer names. `sizes` are the arguments that are whole numbers."""
    statements = [copy.deepcopy(statement) for statement in body]
    while True:
        before = _text(statements)
        kept = _assigned_again(statements)
        statements = _propagated(statements, {}, kept, sizes)
        statements = _without_dead(statements)
        statements = _inlined(statements, kept)
        if _text(statements) == before:
            return statements


def _text(statements: Sequence[ast.stmt]) -> str:
    return "\n".join(ast.unparse(statement) for statement in statements)


def target_of(statement: ast.stmt) -> str | None:
    """The name that a plain assignment binds."""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return None


def _assigned_again(statements: Sequence[ast.stmt]) -> frozenset[str]:
    """Names that a block assigns twice, or a loop and the block around it: sums over a loop."""
    here = Counter(name for statement in statements if (name := target_of(statement)))
    again = {name for name, count in here.items() if count > 1}
    for statement in statements:
        if isinstance(statement, ast.For):
            inner = [name for part in statement.body if (name := target_of(part))]
            again |= _assigned_again(statement.body) | {name for name in inner if here[name]}
    return frozenset(again)


class _Substituted(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return copy.deepcopy(self.values[node.id])
        return node


def _propagated(
    statements: Sequence[ast.stmt], known: dict[str, ast.expr], kept: frozenset[str], sizes: frozenset[str]
) -> list[ast.stmt]:
    """Numbers and copies in the place of their names."""
    values = dict(known)
    result: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, ast.For):
            statement.iter = _cast_free(_Substituted(values).visit(statement.iter), sizes)
            statement.body = _propagated(statement.body, values, kept, sizes)
            result.append(statement)
            continue
        statement = _cast_free(_Substituted(values).visit(statement), sizes)
        name = target_of(statement)
        if (
            name
            and name not in kept
            and isinstance(statement, ast.Assign)
            and is_plain(statement.value, kept)
        ):
            values[name] = statement.value
            continue
        result.append(statement)
    return result


def is_plain(node: ast.expr, kept: frozenset[str]) -> bool:
    """A number, or another name that keeps its value."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "float":
        return True
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id not in kept)


class _CastFree(ast.NodeTransformer):
    """Casts of numbers and sizes, and a cast of the same cast, say nothing in Triton."""

    def __init__(self, sizes: frozenset[str]) -> None:
        self.sizes = sizes

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "to"):
            return node
        inner = node.func.value
        names = {part.id for part in ast.walk(inner) if isinstance(part, ast.Name)}
        is_scalar = not any(isinstance(part, ast.Call) for part in ast.walk(inner)) and names <= self.sizes
        return inner if is_scalar or _is_same_cast(inner, node) else node


def _is_same_cast(inner: ast.expr, outer: ast.Call) -> bool:
    return (
        isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and inner.func.attr == "to"
        and ast.unparse(inner.args[0]) == ast.unparse(outer.args[0])
    )


def _cast_free(node: _Node, sizes: frozenset[str]) -> _Node:
    result: _Node = _CastFree(sizes).visit(node)
    return result


def _uses(statements: Sequence[ast.stmt]) -> Counter[str]:
    return Counter(
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )


def _without_dead(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Without assignments that nothing reads."""
    used = _uses(statements)

    def alive(block: Sequence[ast.stmt]) -> list[ast.stmt]:
        result = []
        for statement in block:
            if isinstance(statement, ast.For):
                statement.body = alive(statement.body)
                if not statement.body:
                    continue
            elif (name := target_of(statement)) and not used[name]:
                continue
            result.append(statement)
        return result

    return alive(statements)


def _inlined(statements: list[ast.stmt], kept: frozenset[str]) -> list[ast.stmt]:
    """Short values that one later statement of their block reads once are written there."""
    everywhere = _uses(statements)
    result: list[ast.stmt] = []
    values: dict[str, ast.expr] = {}
    for position, statement in enumerate(statements):
        if isinstance(statement, ast.For):
            result.append(statement)
            statement.body = _inlined(statement.body, kept)
            continue
        statement = _Substituted(values).visit(statement)
        name = target_of(statement)
        rest = statements[position + 1 :]
        later = [one for one in rest if not isinstance(one, ast.For)]
        once = bool(name) and everywhere[name or ""] == 1 and _uses(later)[name or ""] == 1
        once = once or (bool(name) and _uses(rest)[name or ""] == 1 and _uses(later)[name or ""] == 1)
        if (
            name
            and once
            and isinstance(statement, ast.Assign)
            and _may_move(name, statement.value, rest, kept)
        ):
            values[name] = statement.value
            continue
        result.append(statement)
    return result


def _may_move(name: str, value: ast.expr, rest: Sequence[ast.stmt], kept: frozenset[str]) -> bool:
    """Whether the value may be computed where it is read: no memory, nothing that changes on the way."""
    text = ast.unparse(value)
    if (
        name in kept
        or len(text) > _LONGEST_INLINED
        or any(word in text for word in ("tl.load", "tl.sum", "tl.max(", "tl.min(", "tl.arange"))
    ):
        return False
    changing = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} & kept
    reads_next = bool(rest) and not isinstance(rest[0], ast.For) and bool(_uses(rest[:1])[name])
    return not changing or reads_next
