"""`libdevice` in Triton's interpreter, which lacks it: functions by their names, with NumPy bodies.

What is left out (rounding up or down, the last bits of a product) the interpreter could not tell apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice as generic_libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter

Array = Any


def _with_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Array], Array]:
    return lambda values: function(torch.from_numpy(np.ascontiguousarray(values))).numpy()


def _round_away(values: Array) -> Array:
    """Round to the nearest integer, and halves away from zero."""
    whole = np.trunc(values)
    return whole + np.copysign(np.abs(values - whole) >= 0.5, values)


def _sign_of_gamma(values: torch.Tensor) -> torch.Tensor:
    return torch.where((values < 0) & (values.floor() % 2 != 0), -1.0, 1.0)


def _bits(values: Array) -> Array:
    """The bits of each integer, from the highest to the lowest."""
    size = values.dtype.itemsize
    places = np.arange(8 * size - 1, -1, -1).astype(np.uint8)
    return (values.view(f"u{size}")[..., None] >> places) & 1


def _first(bits: Array, otherwise: int) -> Array:
    """The place of the first bit that is set."""
    return np.where(bits.any(-1), bits.argmax(-1), otherwise)


def _ten_to(values: Array) -> Array:
    return np.power(values.dtype.type(10), values)


_ONE_ARGUMENT: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "fabs": np.abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": _ten_to,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "sqrt_rn": np.sqrt,
    "rsqrt": lambda values: 1 / np.sqrt(values),
    "rsqrt_rn": lambda values: 1 / np.sqrt(values),
    "cbrt": np.cbrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "erf": _with_torch(torch.erf),
    "erfc": _with_torch(torch.erfc),
    "lgamma": _with_torch(torch.lgamma),
    "tgamma": _with_torch(lambda values: torch.lgamma(values).exp() * _sign_of_gamma(values)),
    "erfinv": _with_torch(torch.erfinv),
    "erfcinv": _with_torch(lambda values: torch.erfinv(1 - values)),
    "erfcx": _with_torch(torch.special.erfcx),
    "normcdf": _with_torch(torch.special.ndtr),
    "normcdfinv": _with_torch(torch.special.ndtri),
    "cyl_bessel_i0": _with_torch(torch.special.i0),
    "cyl_bessel_i1": _with_torch(torch.special.i1),
    "j0": _with_torch(torch.special.bessel_j0),
    "j1": _with_torch(torch.special.bessel_j1),
    "y0": _with_torch(torch.special.bessel_y0),
    "y1": _with_torch(torch.special.bessel_y1),
    "sinpi": lambda values: np.sin(np.pi * np.fmod(values, 2)),
    "cospi": lambda values: np.cos(np.pi * np.fmod(values, 2)),
    "round": _round_away,
    "saturatef": lambda values: np.fmin(np.fmax(values, 0), 1),
    "rcbrt": lambda values: 1 / np.cbrt(values),
    "rcp_rn": lambda values: 1 / values,
    "logb": lambda values: np.floor(np.log2(np.abs(values))),
    "fast_expf": np.exp,
    "fast_logf": np.log,
    "fast_sinf": np.sin,
    "fast_cosf": np.cos,
    "fast_tanhf": np.tanh,
    "fast_tanf": np.tan,
    "fast_log2f": np.log2,
    "fast_log10f": np.log10,
    "fast_exp10f": _ten_to,
}
_TWO_ARGUMENTS: dict[str, Callable[[Array, Array], Array]] = {
    "pow": np.power,
    "fast_powf": np.power,
    "fmod": np.fmod,
    "remainder": np.remainder,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "min": np.fmin,
    "max": np.fmax,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "div_rn": np.divide,
    "fast_dividef": np.divide,
    "fdim": lambda one, other: np.where(one > other, one - other, one - one),
    "nextafter": np.nextafter,
    "add_rn": np.add,
    "sub_rn": np.subtract,
    "mul_rn": np.multiply,
    "rhypot": lambda one, other: 1 / np.hypot(one, other),
}
_THREE_ARGUMENTS: dict[str, Callable[[Array, Array, Array], Array]] = dict.fromkeys(
    ("fma", "fma_rn"), lambda one, other, more: one * other + more
)
_OF_OTHER_TYPES: dict[str, tuple[tl.dtype, Callable[[Array], Array]]] = {
    "isnan": (tl.int32, np.isnan),
    "isinf": (tl.int32, np.isinf),
    "isfinited": (tl.int32, np.isfinite),
    "finitef": (tl.int32, np.isfinite),
    "signbit": (tl.int32, np.signbit),
    "float2int_rn": (tl.int32, np.rint),
    "float2int_rz": (tl.int32, np.trunc),
    "float2int_rd": (tl.int32, np.floor),
    "float2int_ru": (tl.int32, np.ceil),
    "llrint": (tl.int64, np.rint),
    "llround": (tl.int64, _round_away),
    "int2float_rn": (tl.float32, lambda values: values),
    "float_as_int": (tl.int32, lambda values: values.view(np.int32)),
    "float_as_uint": (tl.uint32, lambda values: values.view(np.uint32)),
    "int_as_float": (tl.float32, lambda values: values.view(np.float32)),
    "uint_as_float": (tl.float32, lambda values: values.view(np.float32)),
    "popc": (tl.int32, lambda values: _bits(values).sum(-1)),
    "clz": (tl.int32, lambda values: _first(_bits(values), _bits(values).shape[-1])),
    "ffs": (tl.int32, lambda values: _first(_bits(values)[..., ::-1], -1) + 1),
}
"""The result types of functions by name, if they differ from the arguments' types."""


def install_libdevice() -> None:
    """Patch this process for good."""
    for module in (generic_libdevice, cuda_libdevice):
        module.__spec__.loader = _SameAgain(module)
        for name, function in (_ONE_ARGUMENT | _TWO_ARGUMENTS | _THREE_ARGUMENTS).items():
            _install(module, name, _elementwise(function))
        for name, (kind, function) in _OF_OTHER_TYPES.items():
            _install(module, name, _elementwise(function, kind))


class _SameAgain:
    """The loader of a patched module: a fresh copy of the module is patched too."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def create_module(self, _: Any) -> None:
        """Python makes the module."""

    def exec_module(self, module: Any) -> None:
        """Fill the copy."""
        names = {name: value for name, value in vars(self._module).items() if not name.startswith("__")}
        vars(module).update(names)


def _install(module: Any, name: str, function: Any) -> None:
    if hasattr(module, name):
        function.__name__, function.__module__ = name, module.__name__
        setattr(module, name, function)


def _elementwise(function: Callable[..., Array], result: tl.dtype | None = None) -> Callable[..., Any]:
    def apply(*arguments: Any, **_: Any) -> Any:
        semantic, builder = interpreter.interpreter_semantic, interpreter.interpreter_builder
        tensors = [semantic.to_tensor(argument) for argument in arguments]
        widest = max(tensors, key=lambda tensor: tensor.handle.data.size)
        dtype = result or widest.dtype
        blocks = [tensor.handle.data.astype(widest.handle.data.dtype) for tensor in tensors]

        def whole(data: Array) -> Array:
            return function(data, *blocks[1:]).astype(interpreter._get_np_dtype(dtype))

        handle = builder.unary_op(interpreter.TensorHandle(blocks[0], dtype), whole)
        shape = list(handle.data.shape)
        return tl.tensor(handle, tl.block_type(dtype, shape) if widest.type.is_block() else dtype)

    return apply
