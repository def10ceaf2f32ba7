"""The syntax and names that a Triton kernel may use. The interpreter would run any Python, and Triton's
compiler runs some of it too."""

from __future__ import annotations

import ast
import builtins
import functools
import io
import math
import re
import symtable
import tokenize
from collections.abc import Set
from typing import Any, TypeGuard

import triton
import triton.language as tl

BUILTINS: dict[str, Any] = {
    function.__name__: function
    for function in (range, len, min, max, abs, int, float, bool, isinstance, tuple, list, print, sum, zip)
}
BUILTINS |= {"enumerate": enumerate, "AssertionError": AssertionError}
MODULES: dict[str, Any] = {"triton": triton, "triton.language": tl, "math": math}
_TRITON_MEMBERS = ("cdiv", "next_power_of_2", "language", "jit", "constexpr")
_VALUES = (tl.tensor, tl.tensor_descriptor, tl.constexpr, tl.tuple, tl.block_type, tl.pointer_type)
_TYPES = (tl.float32, tl.int32)
_VALUE_ATTRIBUTES = (
    frozenset(name for kind in _VALUES for name in dir(kind) if not name.startswith("_"))
    | frozenset(name for kind in _TYPES for name in vars(kind) if not name.startswith("_"))
    | frozenset(name for name, member in vars(tl.tensor).items() if tl.core.is_builtin(member))
    | {"shape", "strides", "block_shape", "dtype", "type", "value", "values", "element_ty", "numel"}
)
"""The attributes of a value in a kernel, operators such as `x.__lshift__` too; instances have some that their
types do not show."""
_COMPILABLE = (
    ast.arguments, ast.arg, ast.keyword, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.Expr, ast.Pass, ast.Return, ast.Assert, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If, ast.For,
    ast.While, ast.With, ast.withitem, ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice,
    ast.Tuple, ast.List, ast.Starred, ast.ListComp, ast.comprehension, ast.BinOp, ast.UnaryOp, ast.BoolOp,
    ast.Compare, ast.IfExp, ast.Call, ast.JoinedStr, ast.FormattedValue, ast.Raise,
)  # fmt: skip
"""The part of Python's syntax that Triton's compiler accepts; the interpreter would run all of it."""


class KernelRefused(Exception):
    """A function that is not a Triton kernel; `line` is the candidate's own line number."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def check_encoding(source: str) -> None:
    """A file of this text must say the same to every reader, whatever encoding it names."""
    try:
        data = source.encode()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        is_same = data.decode(encoding) == source.removeprefix("\ufeff")
    except (SyntaxError, LookupError, ValueError):
        is_same = False
    if not is_same:
        line, name = _named_encoding(source)
        raise KernelRefused(line, f"the file names an encoding in which it is another text or none: {name}")


def _named_encoding(source: str) -> tuple[int, str]:
    """The line among the first two that names an encoding, and the encoding. A comment that says "decoding:
    keys" names one too."""
    for number, line in enumerate(source.splitlines()[:2], 1):
        if coding := re.match(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", line):
            return number, coding[1]
    return 1, "none"


def forget_foreign_annotations(node: ast.FunctionDef, names: dict[str, Any]) -> None:
    """`x: torch.Tensor` says nothing to Triton; what might stays, and is checked."""
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if argument.annotation is None or "constexpr" in ast.unparse(argument.annotation):
            continue
        try:
            for part in ast.walk(argument.annotation):
                _check_node(part, set(), names, node.lineno)
        except KernelRefused:
            argument.annotation = None


def defined_names(tree: ast.Module) -> frozenset[str]:
    """All words of a file but the names that it only reads and the texts that it only compares, and what
    Python itself defines."""
    compared = {
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for part in (node.left, *node.comparators)
    }
    nodes = (node for node in ast.walk(tree) if not _reads_a_name(node) and node not in compared)
    words = {word for node in nodes for word in vars(node).values() if isinstance(word, str)}
    return frozenset({*dir(builtins), *(word.partition(".")[0] for word in words)})


def _reads_a_name(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def check_function(node: ast.FunctionDef, names: dict[str, Any], text: str, defined: Set[str]) -> None:
    """Refuse whatever could reach outside a kernel; Triton's own compiler refuses the rest. A name that is
    `defined` nowhere may stand in a branch that a constant switches off, and fails in any other."""
    for inner in ast.walk(node.args):
        _check_node(inner, set(), names, node.lineno)
    for part in node.body:
        for inner in ast.walk(part):
            if not isinstance(inner, _COMPILABLE):
                _check_node(inner, set(), names, node.lineno)
    read = {name.id for name in filter(_reads_a_name, ast.walk(node)) if not name.id.startswith("__")}
    local = _local_names(node, text) | read - defined
    for part in node.body:
        for inner in ast.walk(part):
            _check_node(inner, local, names, node.lineno)


def _local_names(node: ast.FunctionDef, text: str) -> set[str]:
    """The names that are the function's own wherever it uses them: a comprehension's are so in it alone."""
    try:
        waiting = symtable.symtable(text, node.name, "exec").get_children()
    except (SyntaxError, ValueError, RecursionError) as error:
        raise KernelRefused(node.lineno, f"{node.name} cannot be understood: {error}") from error
    own: set[str] = set()
    outer: set[str] = set()
    while waiting:
        scope = waiting.pop()
        waiting.extend(scope.get_children())
        for symbol in scope.get_symbols():
            # Not `is_global`, which takes a function of the name "top" for a module.
            is_own = symbol.is_local() or symbol.is_free()
            (own if is_own else outer).add(symbol.get_name())
    if own & outer:
        raise KernelRefused(node.lineno, f"names that mean two things: {', '.join(sorted(own & outer))}")
    return own


def _check_node(node: ast.AST, local: set[str], names: dict[str, Any], first_line: int) -> None:
    line = getattr(node, "lineno", first_line)
    if not isinstance(node, _COMPILABLE):
        raise KernelRefused(line, f"unsupported in a kernel: {type(node).__name__}")
    if isinstance(node, ast.Attribute):
        hidden = node.attr.startswith("__") and node.attr not in _VALUE_ATTRIBUTES
        if hidden or node.attr == "handle" or isinstance(node.ctx, ast.Store | ast.Del):
            raise KernelRefused(line, f"unsupported in a kernel: attribute {node.attr}")
        _check_chain(node, local, names, line)
    if _reads_a_name(node) and not any(node.id in known for known in (local, names, BUILTINS)):
        raise KernelRefused(line, f"name '{node.id}' is not defined in the kernel")


def _check_chain(node: ast.Attribute, local: set[str], names: dict[str, Any], line: int) -> None:
    """`tl.math.exp` must stay inside Triton's language, whatever modules it imports itself. Other attributes
    may belong to any object, a module too. So only attributes of a Triton value are allowed there."""
    parts = [node.attr]
    root: ast.expr = node.value
    while isinstance(root, ast.Attribute):
        parts.append(root.attr)
        root = root.value
    if not isinstance(root, ast.Name) or root.id in local or root.id not in names:
        if node.attr not in _VALUE_ATTRIBUTES:
            raise KernelRefused(line, f"unsupported in a kernel: attribute {node.attr}")
        return
    value, passed = names[root.id], root.id
    if value is math:
        return
    for part in reversed(parts):
        if value is triton and part not in _TRITON_MEMBERS:
            raise KernelRefused(line, f"unsupported in a kernel: triton.{part}")
        inside = getattr(value, part, None)
        if inside is None:
            raise KernelRefused(line, f"{passed} has no attribute '{part}'")
        if value is not triton and not _belongs_to_triton(inside):
            raise KernelRefused(line, f"unsupported in a kernel: {ast.unparse(node)}")
        value, passed = inside, f"{passed}.{part}"


def member_of_triton(parent: Any, name: str, line: int) -> Any:
    member = getattr(parent, name, None) if not name.startswith("__") else None
    if member is None or not _belongs_to_triton(member):
        raise KernelRefused(line, f"{name} is not a member of triton.language")
    return member


def _belongs_to_triton(value: Any) -> bool:
    if isinstance(value, functools.partial):
        value = value.func
    if value is print or value is tl.PropagateNan:  # `static_print`, and an enumeration in C++
        return True
    if isinstance(value, bool | int | float | str) or type(value).__module__.startswith("triton."):
        return True
    module = value.__name__ if hasattr(value, "__path__") or hasattr(value, "__spec__") else None
    home = module or getattr(value, "__module__", None) or ""
    return home.startswith(("triton.language", "triton.runtime.interpreter"))
