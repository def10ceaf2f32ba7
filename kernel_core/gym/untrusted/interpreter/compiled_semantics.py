"""Give the Python of an interpreted kernel the meaning that Triton's compiler gives it.

The compiler evaluates `and`, `or`, `not`, `min` and `max` of tensors element by element. It evaluates both
sides of a condition that it cannot decide, and refuses a block as a condition. The interpreter would run them
as Python's own. A test for a constant distinguishes interpreter and compiler, because their constants differ,
so it is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, cast

import triton.language as tl
from triton.runtime import interpreter

_NUMBERS = (bool, int, float, tl.tensor)
_OF_NUMBERS = frozenset({"to", "cast", "dtype", "type", "value", "abs"})
"""Attributes that the compiler finds on numbers: it makes a tensor or a `tl.constexpr` of each."""
_OWN = {"min": "<min>", "max": "<max>", "isinstance": "<isinstance>"}
"""Names that the compiler knows where a kernel has none of its own. What stands for them can be no
identifier, so that no candidate has one of the same name."""


class Undecidable(Exception):
    """Python of a kernel that would mean one thing where interpreted and another where compiled."""


def mean_as_compiled() -> None:
    """Patch the interpreter of this process for good, after it has patched the language."""
    kind: Any = interpreter.FunctionRewriter
    transform, run = kind._transform_ast, kind._compile_and_exec

    def transform_ast(self: Any, source: str) -> Any:
        self.ast_transformer = as_compiled({*self.fn.__globals__, *self.fn.__code__.co_freevars})
        return transform(self, source)

    def compile_and_exec(self: Any, tree: Any) -> Any:
        self.fn.__globals__.update(HELPERS)
        return run(self, tree)

    kind._transform_ast, kind._compile_and_exec = transform_ast, compile_and_exec
    reduction: Any = interpreter.ReduceOps
    scan: Any = interpreter.ScanOps
    reduction.generic_reduce = _with_rewritten(reduction.generic_reduce)
    scan.generic_scan = _with_rewritten(scan.generic_scan)


def as_compiled(known: set[str]) -> ast.NodeTransformer:
    """Rewrites a function in which these names are known; it needs the `HELPERS`."""
    return _CompiledSemantics(known)


class _CompiledSemantics(interpreter.ASTTransformer):  # type: ignore[misc, unused-ignore]
    """Puts functions in the place of what Python would do."""

    def __init__(self, known: set[str]) -> None:
        self._known = known

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Names that the function binds are its own."""
        for part in ast.walk(node):
            if isinstance(part, ast.arg):
                self._known.add(part.arg)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                self._known.add(part.id)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The compiler's `min` for Python's."""
        if node.id in _OWN and node.id not in self._known and isinstance(node.ctx, ast.Load):
            return ast.copy_location(ast.Name(id=_OWN[node.id], ctx=ast.Load()), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Attributes of numbers. Modules have no attributes of these names but `tl.cast`, `tl.dtype` and
        `tl.abs`, and the function passes those on."""
        self.generic_visit(node)
        if node.attr in _OF_NUMBERS and isinstance(node.ctx, ast.Load):
            return _call("<attribute>", [node.value, ast.Constant(value=node.attr)], node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A number becomes a tensor, as in Triton's own. That of 3.6 leaves the value unvisited."""
        if len(node.targets) > 1:
            raise Undecidable("an assignment to several targets: Triton takes one; write a line for each")
        self.generic_visit(node)
        node.value = _call("<tensor>", [node.value], node.value)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Operands are evaluated one by one, as far as it takes."""
        self.generic_visit(node)
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        operands: list[ast.expr] = [ast.Lambda(args=nothing, body=value) for value in node.values]
        return _call("<and>" if isinstance(node.op, ast.And) else "<or>", operands, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """`not`; the others are the tensor's."""
        self.generic_visit(node)
        return _call("<not>", [node.operand], node) if isinstance(node.op, ast.Not) else node

    def visit_If(self, node: ast.If) -> ast.AST:
        """A condition is one truth."""
        return self._with_condition(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """A conditional expression, as in a statement."""
        return self._with_condition(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        """Asked anew each time."""
        return self._with_condition(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        """The compiler makes no stages of a loop around another, and leaves keywords of Python's own `range`
        out: `range(a, b, step=c)` has steps of one."""
        inside = [inner for statement in node.body for inner in ast.walk(statement)]
        has_loops = any(isinstance(inner, ast.For | ast.While) for inner in inside)
        if isinstance(node.iter, ast.Call):
            is_pythons = isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range"
            kept = [
                keyword for keyword in node.iter.keywords if not (has_loops and keyword.arg == "num_stages")
            ]
            node.iter.keywords = [] if is_pythons and "range" not in self._known else kept
        return self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        """Each of its conditions is one truth too."""
        self.generic_visit(node)
        node.ifs = [_call("<if>", [test], test) for test in node.ifs]
        return node

    def _with_condition(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        node.test = _call("<if>", [node.test], node.test)
        return cast(ast.AST, node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """An assertion holds of every element."""
        self.generic_visit(node)
        node.test = _call("<all>", [node.test], node.test)
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        """`is` of two values; what else is compared knows what it means."""
        identity = [isinstance(op, ast.Is | ast.IsNot) for op in node.ops]
        if not any(identity):
            # Triton before 3.9 leaves chains of comparisons to Python.
            compare: Any = getattr(super(), "visit_Compare", self.generic_visit)
            return compare(node)
        if len(node.ops) > 1:
            raise Undecidable("`is` in a chain of comparisons")
        self.generic_visit(node)
        name = "<is>" if isinstance(node.ops[0], ast.Is) else "<is not>"
        return _call(name, [node.left, *node.comparators], node)


def _call(name: str, arguments: list[ast.expr], node: ast.expr) -> ast.expr:
    function = ast.Name(id=name, ctx=ast.Load())
    return ast.copy_location(ast.Call(func=function, args=arguments, keywords=[]), node)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _tensor(value: Any) -> Any:
    return interpreter.interpreter_semantic.to_tensor(value, False)


def _truth(value: Any) -> Any:
    """The truth of each element. The compiler takes booleans and pointers only."""
    if value.dtype.is_int1():
        return value
    return (value.to(tl.int64) if value.dtype.is_ptr() else value) != 0


def _logical(stops_at: bool, *operands: Callable[[], Any]) -> Any:
    tensors, value = [], None
    for operand in operands:
        value = operand()
        if isinstance(value, tl.tensor):
            tensors.append(value)
        elif bool(value) is stops_at:
            return value
    if len(tensors) < 2:
        return tensors[0] if tensors else value
    combine = (lambda left, right: left | right) if stops_at else (lambda left, right: left & right)
    return reduce(combine, map(_truth, tensors))


def _not(value: Any) -> Any:
    return ~_truth(value) if isinstance(value, tl.tensor) else not value


def _attribute(value: Any, name: str) -> Any:
    """An attribute as the compiler finds it. Constants have a `value`, and other numbers are tensors."""
    if name == "value" and isinstance(value, bool | int | float | str | tl.dtype | None):
        return value
    if isinstance(value, bool | int | float):
        value = interpreter.interpreter_semantic.to_tensor(value)
    return getattr(value, name)


def _identical(wanted: bool, left: Any, right: Any) -> bool:
    left, right = _plain(left), _plain(right)
    is_told = left is None or right is None or all(isinstance(value, tl.dtype) for value in (left, right))
    if not is_told:
        raise Undecidable("`is` of anything but None: what is one object here need not be where compiled")
    return (left is right) == wanted


def _isinstance(value: Any, kinds: Any) -> bool:
    value, kinds = _plain(value), _plain(kinds)
    asked = tuple(
        kind for kind in (kinds if isinstance(kinds, tuple) else (kinds,)) if kind is not tl.constexpr
    )
    if asked and _is_number(value) and any(issubclass(kind, wanted) for kind in _NUMBERS for wanted in asked):
        raise Undecidable("isinstance of a number: what is a constant here need not be one where compiled")
    return isinstance(value, asked)


def _is_number(value: Any) -> bool:
    if not isinstance(value, tl.tensor):
        return isinstance(value, _NUMBERS)
    return not value.type.is_block() and not value.dtype.is_ptr()


def _extreme(name: str, *values: Any, **named: Any) -> Any:
    return _plain(getattr(tl.core, name)(*values, **named))


def _all(value: Any) -> Any:
    return bool(value.handle.data.all()) if isinstance(value, tl.tensor) else value


def _condition(value: Any) -> Any:
    if isinstance(value, tl.tensor) and value.handle.data.size != 1:
        raise Undecidable("a block of several elements as a condition: it is neither true nor false")
    return value


HELPERS: dict[str, Callable[..., Any]] = {
    "<attribute>": _attribute,
    "<tensor>": _tensor,
    "<and>": partial(_logical, False),
    "<or>": partial(_logical, True),
    "<not>": _not,
    "<is>": partial(_identical, True),
    "<is not>": partial(_identical, False),
    "<isinstance>": _isinstance,
    "<min>": partial(_extreme, "builtin_min"),
    "<max>": partial(_extreme, "builtin_max"),
    "<if>": _condition,
    "<all>": _all,
}


class _Rewritten:
    """The combine function of a reduction, in the form in which kernels run."""

    def __init__(self, function: Any) -> None:
        self.fn = function.rewrite()


def _with_rewritten(method: Callable[..., Any]) -> Callable[..., Any]:
    def combined(self: Any, values: Any) -> Any:
        original = self.combine_fn
        if hasattr(original, "rewrite"):
            self.combine_fn = _Rewritten(original)
        try:
            return method(self, values)
        finally:
            self.combine_fn = original

    return combined
