"""How often the loops of interpreted kernels turn, so that it is known which have not shown a second turn."""

from __future__ import annotations

import ast
from typing import Any

from triton.runtime import interpreter

_UNROLLED = "static_range"

_most_turns: dict[str, int] = {}
_turns: dict[str, int] = {}
"""Of the loop as it was entered last. Both by loop, in this process."""


def count_loops() -> None:
    """Have the interpreter of this process, and of its children, count turns, for good."""
    transform = interpreter.FunctionRewriter._transform_ast

    def transform_ast(self: Any, text: str) -> Any:
        return ast.fix_missing_locations(_Counting(self.fn.__qualname__).visit(transform(self, text)))

    interpreter.FunctionRewriter._transform_ast = transform_ast
    for function in (_begin_to_count, _count_turn):
        setattr(interpreter, function.__name__, function)


def any_turned_once() -> bool:
    """Whether some loop of this process's kernels turned once at most in every program, where it might turn
    more often."""
    return any(turns <= 1 for turns in _most_turns.values())


def _begin_to_count(loop: str) -> None:
    _turns[loop] = 0
    _most_turns.setdefault(loop, 0)


def _count_turn(loop: str) -> None:
    _turns[loop] += 1
    _most_turns[loop] = max(_turns[loop], _most_turns[loop])


class _Counting(ast.NodeTransformer):
    """Counts the turns of loops whose number of turns is not written down."""

    def __init__(self, function: str) -> None:
        self._function = function

    def visit_For(self, node: ast.For) -> Any:
        return self.generic_visit(node) if _is_known(node.iter) else self._counted(node)

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        return self._counted(node)

    def _counted(self, node: ast.For | ast.While) -> list[ast.stmt]:
        self.generic_visit(node)
        loop = ast.Constant(f"{self._function}:{node.lineno}")
        begin, turn = (
            ast.Expr(ast.Call(ast.Name(function.__name__, ast.Load()), [loop], []))
            for function in (_begin_to_count, _count_turn)
        )
        node.body.insert(0, turn)
        return [begin, node]


def _is_known(turns: ast.expr) -> bool:
    if not isinstance(turns, ast.Call):
        return True
    called = turns.func.attr if isinstance(turns.func, ast.Attribute) else getattr(turns.func, "id", "")
    return called == _UNROLLED or all(isinstance(one, ast.Constant) for one in turns.args)
