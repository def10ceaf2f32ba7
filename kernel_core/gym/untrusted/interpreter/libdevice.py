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

from kernel_core.gym.untrusted.interpreter.instructions import instruction

Array = Any


def _with_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Array], Array]:
    return instruction(lambda values: function(torch.from_numpy(np.ascontiguousarray(values))).numpy())


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


_AS_NUMPY = (
    *("abs", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos", "tan"),
    *("sinh", "cosh", "tanh", "floor", "ceil", "trunc", "rint"),
)
_FAST = ("exp", "log", "sin", "cos", "tanh", "tan", "log2", "log10")
_ARC = ("asin", "acos", "atan", "asinh", "acosh", "atanh")
_AS_TORCH = ("erf", "erfc", "lgamma", "erfinv")
_SPECIAL = {
    "erfcx": "erfcx", "normcdf": "ndtr", "normcdfinv": "ndtri", "cyl_bessel_i0": "i0", "cyl_bessel_i1": "i1",
    "j0": "bessel_j0", "j1": "bessel_j1", "y0": "bessel_y0", "y1": "bessel_y1",
}  # fmt: skip
"""Functions by their names in `libdevice`, and their names in `torch.special`."""
_ONE_ARGUMENT: dict[str, Callable[[Array], Array]] = {
    **{name: getattr(np, name) for name in _AS_NUMPY},
    **{f"fast_{name}f": getattr(np, name) for name in _FAST},
    **{name: getattr(np, f"arc{name[1:]}") for name in _ARC},
    **{name: _with_torch(getattr(torch, name)) for name in _AS_TORCH},
    **{name: _with_torch(getattr(torch.special, theirs)) for name, theirs in _SPECIAL.items()},
    **dict.fromkeys(("rsqrt", "rsqrt_rn"), lambda values: 1 / np.sqrt(values)),
    **dict.fromkeys(("exp10", "fast_exp10f"), _ten_to),
    "fabs": np.abs,
    "sqrt_rn": np.sqrt,
    "nearbyint": np.rint,
    "round": _round_away,
    "tgamma": _with_torch(lambda values: torch.lgamma(values).exp() * _sign_of_gamma(values)),
    "erfcinv": _with_torch(lambda values: torch.erfinv(1 - values)),
    "sinpi": lambda values: np.sin(np.pi * np.fmod(values, 2)),
    "cospi": lambda values: np.cos(np.pi * np.fmod(values, 2)),
    "saturatef": lambda values: np.fmin(np.fmax(values, 0), 1),
    "rcbrt": lambda values: 1 / np.cbrt(values),
    "rcp_rn": lambda values: 1 / values,
    "logb": lambda values: np.floor(np.log2(np.abs(values))),
}
_TWO_ARGUMENTS: dict[str, Callable[[Array, Array], Array]] = {
    **{name: getattr(np, name) for name in ("fmod", "remainder", "hypot", "copysign", "nextafter")},
    **dict.fromkeys(("pow", "fast_powf"), np.power),
    **dict.fromkeys(("min", "fmin"), np.fmin),
    **dict.fromkeys(("max", "fmax"), np.fmax),
    **dict.fromkeys(("div_rn", "fast_dividef"), np.divide),
    "atan2": np.arctan2,
    "add_rn": np.add,
    "sub_rn": np.subtract,
    "mul_rn": np.multiply,
    "fdim": lambda left, other: np.where(left > other, left - other, left - left),
    "rhypot": lambda left, other: 1 / np.hypot(left, other),
}
_THREE_ARGUMENTS: dict[str, Callable[[Array, Array, Array], Array]] = dict.fromkeys(
    ("fma", "fma_rn"), lambda factor, other, more: factor * other + more
)
_OF_OTHER_TYPES: dict[str, tuple[tl.dtype, Callable[[Array], Array]]] = {
    "isnan": (tl.int1, np.isnan),
    "isinf": (tl.int1, np.isinf),
    **dict.fromkeys(("isfinited", "finitef"), (tl.int1, np.isfinite)),
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

        # A handle refuses data of more bits than its type, and a condition has fewer than what it tells of.
        wide = tl.int64 if result == tl.int1 else dtype
        handle = builder.unary_op(interpreter.TensorHandle(blocks[0], wide), whole)
        handle.dtype = dtype
        shape = list(handle.data.shape)
        return tl.tensor(handle, tl.block_type(dtype, shape) if widest.type.is_block() else dtype)

    return apply
