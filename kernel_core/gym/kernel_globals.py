"""The names that a candidate's kernel takes from around it, described so that it can be rebuilt elsewhere."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable
from typing import Any, TypeAlias

import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

JitFunction: TypeAlias = InterpretedFunction | JITFunction
"""A kernel on the CPU, where Triton interprets it, or on a GPU."""


def describe_globals(function: Any, describe: Callable[[JitFunction], int]) -> dict[str, Any]:
    """The names that a kernel takes from its module or its closure, each as a reference or a constant."""
    closure = inspect.getclosurevars(function)
    visible = {**closure.globals, **closure.nonlocals}
    for name in _names_in_signature(function):
        if name in function.__globals__:
            visible[name] = function.__globals__[name]
    described = {}
    for name, value in visible.items():
        reference = _reference(value, describe)
        if reference is not _UNKNOWN:
            described[name] = reference
    return described


_UNKNOWN = object()


def _reference(value: Any, describe: Callable[[JitFunction], int]) -> Any:
    if isinstance(value, types.ModuleType):
        name = value.__name__
        if name in ("triton", "triton.language", "math"):
            return {"module": name}
        parent, _, leaf = name.rpartition(".")
        return {"member": [parent, leaf]} if name.startswith("triton.language.") else _UNKNOWN
    if isinstance(value, tl.constexpr):
        return {"constexpr": _reference(value.value, describe)}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, tuple | list):
        return {"tuple": [_reference(item, describe) for item in value]}
    if isinstance(value, tl.dtype):
        return {"member": ["triton.language", str(value)]}
    function = value.fn if isinstance(value, JitFunction) else value
    home, member = getattr(function, "__module__", None), getattr(function, "__name__", None)
    if isinstance(home, str) and isinstance(member, str) and home.startswith("triton."):
        return {"member": ["triton.language" if hasattr(tl, member) else home, member]}
    return {"jit": describe(value)} if isinstance(value, JitFunction) else _UNKNOWN


def _names_in_signature(function: Any) -> list[str]:
    try:
        tree = ast.parse(inspect.cleandoc(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return []
    definition = next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), None)
    if definition is None:
        return []
    return [node.id for node in ast.walk(definition.args) if isinstance(node, ast.Name)]
