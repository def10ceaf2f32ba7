"""Scalar arguments with a type in the kernel's signature, as a launch passes them.

`factor: tl.float16` compiles to a 16-bit parameter, and `n: "i8"` to one of 8 bits. Of the annotations the
interpreter reads only `constexpr`, and keeps the Python number.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton._utils import type_canonicalisation_dict
from triton.runtime import interpreter
from triton.runtime.jit import _normalize_ty

_NAMES = frozenset(type_canonicalisation_dict.values()) - {"void"}


def type_arguments() -> None:
    """Patch the interpreter of this process for good."""
    kind: Any = interpreter.GridExecutor
    execute = kind.__call__

    def call(self: Any, *args: Any, **named: Any) -> Any:
        types = _scalar_types(self.fn)
        if types:
            values = dict(zip(self.arg_names, args, strict=False))
            defaults = {
                name: parameter.default
                for name, parameter in inspect.signature(self.fn).parameters.items()
                if name in types and parameter.default is not parameter.empty
            }
            args = tuple(_typed(value, types.get(name)) for name, value in values.items())
            rest = {name: value for name, value in (defaults | named).items() if name not in values}
            named = {name: _typed(value, types.get(name)) for name, value in rest.items()}
        return execute(self, *args, **named)

    kind.__call__ = call


@functools.lru_cache(maxsize=1024)
def _scalar_types(function: Callable[..., Any]) -> dict[str, tl.dtype]:
    names = {name: _normalize_ty(kind) for name, kind in inspect.get_annotations(function).items()}
    return {name: tl.str_to_ty(kind, None) for name, kind in names.items() if kind in _NAMES}


def _typed(value: Any, kind: tl.dtype | None) -> Any:
    """The number as a scalar of this type. Anything else is passed on: a pointer has its own type."""
    if kind is None or not isinstance(value, int | float):
        return value
    if isinstance(value, float) and not kind.is_floating():
        raise TypeError(f"an argument of type {kind} was given {value!r}")
    if not kind.is_floating():
        bits, is_signed = kind.primitive_bitwidth, kind.is_int_signed()
        number = (
            np.bool_(value) if bits == 1 else _wrapped(int(value), f"{'i' if is_signed else 'u'}{bits // 8}")
        )
        return tl.tensor(interpreter.TensorHandle(np.array([number]), kind), kind)
    wide = interpreter.TensorHandle(np.array([value], dtype=np.float64), tl.float64)
    handle = wide if kind == tl.float64 else interpreter.interpreter_builder.cast_impl(wide, kind)
    return tl.tensor(handle, kind)


def _wrapped(value: int, dtype: str) -> Any:
    """The lowest bits of a whole number."""
    size = np.dtype(dtype).itemsize
    return np.frombuffer((value % (1 << 8 * size)).to_bytes(size, "little"), dtype=dtype)[0]
