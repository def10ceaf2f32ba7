"""Turns of the loops of interpreted kernels, by the line of each loop in the candidate's file.

A fault in a later turn does not show where a loop turns once. So turns are counted where a kernel runs, and
for the problem's own sizes they are probed: a few programs run without memory, and each loop is left after
`ENOUGH` turns, or `MANY` where their number is not known before.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, TensorHandle

from kernel_core.gym.channel.candidate_file import CANDIDATE_FILE
from kernel_core.gym.channel.loop_coverage import ENOUGH, MANY

_FOR, _WHILE = "<turns>", "<turn>"
"""Names that can be no identifiers, so that no candidate has one of the same name."""


class LoopTurns:
    """The most turns that each loop made when it was entered, by line."""

    def __init__(self) -> None:
        self.most: dict[int, int] = {}
        self.is_probing = False
        self._turns_of_while: dict[int, int] = {}

    def each(self, line: int, values: Iterable[Any]) -> Iterator[Any]:
        """Yield the values of a `for` loop."""
        known = len(values) if isinstance(values, range) else 0
        for turn, value in enumerate(values, start=1):
            self._note(line, max(turn, known))
            yield value
            if self.is_probing and turn == (ENOUGH if known else MANY):
                return

    def again(self, line: int, condition: Any) -> Any:
        """Return the condition of a `while` loop, which is false after many turns of a probe."""
        turn = self._turns_of_while.get(line, 0) + 1 if condition else 0
        if self.is_probing and turn > MANY:
            turn = 0
        self._turns_of_while[line] = turn
        self._note(line, turn)
        return condition if turn else False

    def pairs(self) -> list[list[int]]:
        """Return lines and turns for a message."""
        return [[line, turns] for line, turns in sorted(self.most.items())]

    def _note(self, line: int, turn: int) -> None:
        self.most[line] = max(turn, self.most.get(line, 0))


TURNS = LoopTurns()
"""The turns in this process."""


def count_turns() -> None:
    """Patch the interpreter of this process for good, after `mean_as_compiled`."""
    kind: Any = interpreter.FunctionRewriter
    transform = kind._transform_ast

    def transform_ast(self: Any, source: str) -> Any:
        tree = transform(self, source)
        if Path(self.filename).name == CANDIDATE_FILE:
            self.fn.__globals__.update({_FOR: TURNS.each, _WHILE: TURNS.again})
            tree = ast.fix_missing_locations(_CountedLoops().visit(tree))
        return tree

    kind._transform_ast = transform_ast


class _CountedLoops(ast.NodeTransformer):
    """Passes the values of loops, and the conditions of others, through the counter."""

    def visit_For(self, node: ast.For) -> ast.AST:
        """Count the values."""
        node.iter = _call(_FOR, node.lineno, node.iter)
        return self.generic_visit(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        """Count the times that the condition holds."""
        node.test = _call(_WHILE, node.lineno, node.test)
        return self.generic_visit(node)


def _call(name: str, line: int, value: ast.expr) -> ast.expr:
    function = ast.Name(id=name, ctx=ast.Load())
    return ast.copy_location(
        ast.Call(func=function, args=[ast.Constant(value=line), value], keywords=[]), value
    )


def forget_memory() -> None:
    """Let kernels of this process load zeros and store nothing, for good: for a probe."""
    builder: Any = InterpreterBuilder

    def load(self: Any, pointers: Any, *_: Any, **__: Any) -> TensorHandle:
        kind = pointers.get_element_ty()
        return TensorHandle(np.zeros(pointers.data.shape, interpreter._get_np_dtype(kind)), kind)

    def exchange(self: Any, *given: Any, **_: Any) -> TensorHandle:
        value = next(handle for handle in given[1:] if isinstance(handle, TensorHandle))
        return TensorHandle(np.zeros_like(value.data), value.dtype.scalar)

    builder.create_masked_load = load
    builder.create_masked_store = lambda *_, **__: None
    builder.create_atomic_rmw = builder.create_atomic_cas = exchange


def probe(function: Any, bound: dict[str, Any], grid: tuple[int, ...]) -> None:
    """Run the first, the middle and the last program of a launch. A kernel that needs values is left."""
    executor = GridExecutor(function.rewrite(), function.arg_names, grid)
    whole = (*grid, 1, 1)[:3]
    TURNS.is_probing = True
    with contextlib.suppress(Exception):
        given = inspect.getcallargs(executor.fn, **bound)
        args = {
            name: value if name in executor.constexprs else interpreter._implicit_cvt(value)
            for name, value in given.items()
        }
        interpreter.interpreter_builder.set_grid_dim(*whole)
        for index in dict.fromkeys([(0, 0, 0), tuple(n // 2 for n in whole), tuple(n - 1 for n in whole)]):
            interpreter.interpreter_builder.set_grid_idx(*index)
            executor.fn(**args)
