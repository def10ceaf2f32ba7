"""Rebuild a candidate's JIT functions from its text, without running the rest of its module.

The compile gate and the replay use only what this module makes: the function's own syntax tree, checked
against the little Python that Triton can compile, and the names it uses, resolved to constants, other
JIT functions or members of `triton.language`. Nothing else of the candidate's comes with it.
"""

from __future__ import annotations

import ast
import functools
import importlib
import math
from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl

_BUILTINS: dict[str, Any] = {
    function.__name__: function
    for function in (range, len, min, max, abs, int, float, bool, isinstance, tuple, list, print, sum, zip)
}
_BUILTINS |= {"enumerate": enumerate, "AssertionError": AssertionError}
_MODULES: dict[str, Any] = {"triton": triton, "triton.language": tl, "math": math}
_TRITON_MEMBERS = ("cdiv", "next_power_of_2", "language", "jit", "constexpr")
_VALUES = (tl.tensor, tl.tensor_descriptor, tl.constexpr, tl.tuple, tl.block_type, tl.pointer_type)
_VALUE_ATTRIBUTES = frozenset(name for kind in _VALUES for name in dir(kind) if not name.startswith("_")) | {
    "shape",
    "strides",
    "block_shape",
    "dtype",
    "type",
    "value",
    "values",
    "element_ty",
}
"""What a value in a kernel can be asked for; instances have some that their types do not show."""
_COMPILABLE = (
    ast.arguments, ast.arg, ast.keyword, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.Expr, ast.Pass, ast.Return, ast.Assert, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If, ast.For,
    ast.While, ast.With, ast.withitem, ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice,
    ast.Tuple, ast.List, ast.Starred, ast.ListComp, ast.comprehension, ast.BinOp, ast.UnaryOp, ast.BoolOp,
    ast.Compare, ast.IfExp, ast.Call, ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip
"""What Triton's compiler takes of Python's syntax; the interpreter would run all of it."""


class KernelRefused(Exception):
    """A function that is not a Triton kernel; `line` is the candidate's own line number."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def find_function(tree: ast.Module, name: str, line: int) -> ast.FunctionDef:
    """The function definition that starts (with its decorators) on a line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == line:
                return node
    raise KernelRefused(line, f"no function {name} is defined at line {line} of the candidate")


def build_kernels(source: str, filename: str, described: Sequence[dict[str, Any]]) -> list[Any]:
    """JIT functions for descriptions `{name, line, globals}`, in order; later ones may use earlier ones.

    One of CUDA C++ has its place, but nothing is built for it here. `filename` must hold `source`, because
    Triton reads a function's text from its file. Raises `KernelRefused`.
    """
    tree = ast.parse(source)
    built: list[Any] = []
    for description in described:
        if description.get("extension"):
            built.append(None)
            continue
        name, line = str(description["name"]), int(description["line"])
        node = find_function(tree, name, line)
        names = {key: _resolve(value, built, line) for key, value in description["globals"].items()}
        _check(node, names)
        built.append(_compile(node, names, filename))
    return built


def _compile(node: ast.FunctionDef, names: dict[str, Any], filename: str) -> Any:
    function = ast.FunctionDef(
        name=node.name,
        args=node.args,
        body=node.body,
        decorator_list=[],
        returns=None,
        type_comment=None,
        lineno=node.lineno,
        col_offset=node.col_offset,
        end_lineno=node.end_lineno,
        end_col_offset=node.end_col_offset,
    )
    if "type_params" in ast.FunctionDef._fields:
        function.type_params = []  # type: ignore[attr-defined, unused-ignore]
    module = ast.Module(body=[function], type_ignores=[])
    namespace: dict[str, Any] = {"__builtins__": _BUILTINS, "__name__": "candidate", **names}
    namespace.setdefault("tl", tl)
    exec(compile(module, filename, "exec", dont_inherit=True), namespace)
    return triton.jit(namespace[node.name])


def _resolve(value: Any, built: Sequence[Any], line: int) -> Any:
    """A described global: a constant, or a reference to something that both sides have."""
    if not isinstance(value, dict):
        return value
    if "jit" in value and int(value["jit"]) < len(built):
        return built[int(value["jit"])]
    if "float" in value:
        return float(value["float"])
    if "constexpr" in value:
        return tl.constexpr(_resolve(value["constexpr"], built, line))
    if "tuple" in value:
        return tuple(_resolve(item, built, line) for item in value["tuple"])
    if "module" in value and value["module"] in _MODULES:
        return _MODULES[value["module"]]
    if "member" in value:
        module, name = value["member"]
        if str(module).startswith("triton.language"):
            return _member(importlib.import_module(module), name, line)
    raise KernelRefused(line, f"a kernel cannot use a global of this kind: {value}")


def _member(parent: Any, name: str, line: int) -> Any:
    found = getattr(parent, name, None) if not name.startswith("__") else None
    if found is None or not _belongs_to_triton(found):
        raise KernelRefused(line, f"{name} is not a member of triton.language")
    return found


def _belongs_to_triton(value: Any) -> bool:
    if isinstance(value, functools.partial):
        value = value.func
    if value is print or value is tl.PropagateNan:  # static_print; an enumeration in C++
        return True
    if isinstance(value, bool | int | float | str) or type(value).__module__.startswith("triton."):
        return True
    module = value.__name__ if hasattr(value, "__path__") or hasattr(value, "__spec__") else None
    home = module or getattr(value, "__module__", None) or ""
    return home.startswith(("triton.language", "triton.runtime.interpreter"))


def _check(node: ast.FunctionDef, names: dict[str, Any]) -> None:
    """Refuse whatever could reach outside a kernel; Triton's own compiler refuses the rest."""
    local = {argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            local.add(part.id)
    for part in [*node.body, node.args]:
        for inner in ast.walk(part):
            _check_node(inner, local, names, node.lineno)


def _check_node(node: ast.AST, local: set[str], names: dict[str, Any], first_line: int) -> None:
    line = getattr(node, "lineno", first_line)
    if not isinstance(node, _COMPILABLE):
        raise KernelRefused(line, f"unsupported in a kernel: {type(node).__name__}")
    if isinstance(node, ast.Attribute):
        hidden = node.attr.startswith("__") or node.attr == "handle"
        if hidden or isinstance(node.ctx, ast.Store | ast.Del):
            raise KernelRefused(line, f"unsupported in a kernel: attribute {node.attr}")
        _check_chain(node, local, names, line)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        known = node.id in local or node.id in names or node.id in _BUILTINS
        if not known or node.id.startswith("__"):
            raise KernelRefused(line, f"name '{node.id}' is not defined in the kernel")


def _check_chain(node: ast.Attribute, local: set[str], names: dict[str, Any], line: int) -> None:
    """`tl.math.exp` must stay inside Triton's language, whatever modules it imports itself.

    What is not such a chain of names may be any object, a module too, and is asked only for what a value of
    Triton's has.
    """
    parts = [node.attr]
    root: ast.expr = node.value
    while isinstance(root, ast.Attribute):
        parts.append(root.attr)
        root = root.value
    if not isinstance(root, ast.Name) or root.id in local or root.id not in names:
        if node.attr not in _VALUE_ATTRIBUTES:
            raise KernelRefused(line, f"unsupported in a kernel: attribute {node.attr}")
        return
    value = names[root.id]
    if value is math:
        return
    for part in reversed(parts):
        if value is triton and part not in _TRITON_MEMBERS:
            raise KernelRefused(line, f"unsupported in a kernel: triton.{part}")
        inside = getattr(value, part, None)
        if inside is None:
            raise KernelRefused(line, f"{root.id} has no attribute '{part}'")
        if value is not triton and not _belongs_to_triton(inside):
            raise KernelRefused(line, f"unsupported in a kernel: {ast.unparse(node)}")
        value = inside
