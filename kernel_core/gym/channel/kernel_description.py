"""The names that a candidate's kernel takes from around it, described so that it can be rebuilt elsewhere."""

from __future__ import annotations

import ast
import contextlib
import dis
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import ConstexprFunction, JITFunction

JitFunction: TypeAlias = InterpretedFunction | JITFunction
"""A kernel on the CPU, where Triton interprets it, or on a GPU."""


@dataclass(frozen=True)
class _Evaluated:
    """The function of `@tl.constexpr`, which the compiler calls with each argument as a `tl.constexpr`."""

    fn: Any


_FUNCTIONS = (InterpretedFunction, JITFunction, ConstexprFunction, _Evaluated)
DTYPES = {str(value): value for value in vars(tl).values() if isinstance(value, tl.dtype)}
"""Triton's types by what `str` says of each, which is not the name that it has in the language."""
_under_way: set[Any] = set()
"""The functions that are being described; a recursive reference to one of them is left out."""


class LaunchedKernels:
    """The launches of some passes. Each kernel is described once, after the kernels that it uses."""

    def __init__(self) -> None:
        self.described: list[dict[str, Any]] = []
        self._numbers: dict[Any, int] = {}

    def number(self, function: Any) -> int:
        """The number of a function, which is described by its place in the file and the names it uses. It is
        a JIT function, or one that is evaluated while a kernel compiles."""
        if function not in self._numbers:
            evaluated = isinstance(function, ConstexprFunction | _Evaluated)
            names = describe_globals(function.fn, self.number, evaluated=evaluated)
            code = function.fn.__code__  # a copy may have another name than the text
            self._add(function, {"name": code.co_name, "line": code.co_firstlineno, "globals": names})
        return self._numbers[function]

    def number_of_native(self, kernel: dict[str, Any]) -> int:
        """The number of a kernel in CUDA C++; `kernel` is the payload of a claim `Kernel`."""
        key = kernel["extension"], kernel["symbol"]
        if key not in self._numbers:
            self._add(key, kernel)
        return self._numbers[key]

    def _add(self, key: Any, description: dict[str, Any]) -> None:
        self._numbers[key] = len(self.described)
        self.described.append(description)


def describe_globals(
    function: Any, describe: Callable[[Any], int], *, evaluated: bool = False
) -> dict[str, Any]:
    """The names that a kernel takes from its module or its closure, each as a reference or a constant, and
    its parameters' defaults by their names. A function that is `evaluated` while a kernel compiles may call
    plain ones of Python."""
    taken = _names_taken(function.__code__) | _names_in_text(function)
    visible = {name: function.__globals__[name] for name in taken if name in function.__globals__}
    visible |= _closed_over(function)
    parameters = inspect.signature(function).parameters.values()
    visible |= {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.default is not parameter.empty
    }
    described = {}
    _under_way.add(function)
    try:
        for name, value in sorted(visible.items()):
            is_plain = evaluated and inspect.isfunction(value)
            reference = _reference(_Evaluated(value) if is_plain else value, describe)
            if reference is not _UNKNOWN:
                described[name] = reference
    finally:
        _under_way.discard(function)
    return described


def _closed_over(function: Any) -> dict[str, Any]:
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            values[name] = cell.cell_contents
    return values


def _names_taken(code: types.CodeType) -> set[str]:
    """The global names of the code, without names of attributes, as by `inspect.getclosurevars`."""
    names = {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return names.union(
        *(_names_taken(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    )


_UNKNOWN = object()


def _reference(value: Any, describe: Callable[[Any], int]) -> Any:
    if isinstance(value, types.ModuleType):
        name = value.__name__
        if name in ("triton", "triton.language", "math"):
            return {"module": name}
        parent, _, leaf = name.rpartition(".")
        return {"member": [parent, leaf]} if name.startswith("triton.language.") else _UNKNOWN
    if isinstance(value, tl.constexpr) and inspect.isfunction(value.value):
        value = _Evaluated(value.value)
    if isinstance(value, tl.constexpr):
        inside = _reference(value.value, describe)
        return _UNKNOWN if inside is _UNKNOWN else {"constexpr": inside}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, tuple | list):
        items = [_reference(item, describe) for item in value]
        return _UNKNOWN if _UNKNOWN in items else {"tuple": items}
    if isinstance(value, tl.dtype):
        return {"tl": str(value)}
    function = value.fn if isinstance(value, _FUNCTIONS) else value
    home, member = getattr(function, "__module__", None), getattr(function, "__name__", None)
    if isinstance(home, str) and isinstance(member, str) and home.startswith("triton."):
        place = ["triton.language" if hasattr(tl, member) else home, member]
        return {"evaluated" if isinstance(value, ConstexprFunction) else "member": place}
    if not isinstance(value, _FUNCTIONS) or function in _under_way:
        return _UNKNOWN
    if isinstance(value, _Evaluated):
        return {"constexpr": {"function": describe(value)}}
    return {"jit" if isinstance(value, JitFunction) else "constexpr_function": describe(value)}


def _names_in_text(function: Any) -> set[str]:
    """The names in the whole text, with those of annotations, defaults and branches that Python removed as
    dead."""
    try:
        tree = ast.parse(inspect.cleandoc(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return set()
    definition = next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), None)
    if definition is None:
        return set()
    parts = [part for root in (definition.args, *definition.body) for part in ast.walk(root)]
    names = [part for part in parts if isinstance(part, ast.Name)]
    stored = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return {name.id for name in names} - stored - {part.arg for part in parts if isinstance(part, ast.arg)}
