"""How often the loops of interpreted kernels turn, so that it is known which have not shown a second turn."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from triton.runtime import interpreter

_NAME = "_count_turns"
_UNROLLED = "static_range"

_most_turns: dict[str, int] = {}
"""By loop, in this process."""


def count_loops() -> None:
    """Have the interpreter of this process, and of its children, count turns, for good."""
    transform = interpreter.FunctionRewriter._transform_ast

    def transform_ast(self: Any, text: str) -> Any:
        return ast.fix_missing_locations(_Counting(self.fn.__qualname__).visit(transform(self, text)))

    interpreter.FunctionRewriter._transform_ast = transform_ast
    setattr(interpreter, _NAME, _count_turns)


def any_turned_once() -> bool:
    """Whether some loop of this process's kernels turned once at most in every program, where it might turn
    more often."""
    return any(turns <= 1 for turns in _most_turns.values())


def _count_turns(loop: str, turns: Iterable[Any]) -> Iterator[Any]:
    count = 0
    try:
        for one in turns:
            count += 1
            yield one
    finally:
        _most_turns[loop] = max(count, _most_turns.get(loop, 0))


class _Counting(ast.NodeTransformer):
    """Counts the turns of loops whose number of turns is not written down."""

    def __init__(self, function: str) -> None:
        self._function = function

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        if _is_known(node.iter):
            return node
        name = ast.Constant(f"{self._function}:{node.lineno}")
        node.iter = ast.Call(ast.Name(_NAME, ast.Load()), [name, node.iter], [])
        return node


def _is_known(turns: ast.expr) -> bool:
    if not isinstance(turns, ast.Call):
        return True
    called = turns.func.attr if isinstance(turns.func, ast.Attribute) else getattr(turns.func, "id", "")
    return called == _UNROLLED or all(isinstance(one, ast.Constant) for one in turns.args)
