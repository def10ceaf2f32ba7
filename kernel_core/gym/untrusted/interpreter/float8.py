"""Casts to and from 8-bit floats in Triton's interpreter, which cuts off, or loses the carry of a rounding.

A GPU rounds to the nearest and keeps to the largest finite number, as PTX's `cvt.rn.satfinite` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter

from kernel_core.gym.untrusted.interpreter.instructions import instruction

_TORCH = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}
_BITS = {tl.float64: np.uint64, tl.float32: np.uint32, tl.float16: np.uint16, tl.bfloat16: np.uint16}


def round_float8() -> None:
    """Patch the interpreter of this process for good."""
    interpreter._convert_float = _rounding(interpreter._convert_float)


def _rounding(cut: Callable[..., Any]) -> Callable[..., Any]:
    def convert(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source in _TORCH and target in _BITS:
            return _widened(data, source, target)
        if source in _BITS and target in _TORCH and rounding != ir.ROUNDING_MODE.RTZ:
            return _rounded(data, source, target)
        return cut(data, source, target, rounding)

    return convert


@instruction
def _rounded(data: Any, source: Any, target: Any) -> Any:
    numbers = torch.from_numpy(np.ascontiguousarray(data))
    if source == tl.bfloat16:  # values are kept as bits
        numbers = torch.from_numpy(np.ascontiguousarray(data).view(np.int16)).view(torch.bfloat16)
    largest = torch.finfo(_TORCH[target]).max
    return numbers.float().clamp(-largest, largest).to(_TORCH[target]).view(torch.uint8).numpy()


@instruction
def _widened(data: Any, source: Any, target: Any) -> Any:
    numbers = torch.from_numpy(np.ascontiguousarray(data).view(np.uint8)).view(_TORCH[source]).float()
    if target == tl.bfloat16:
        return numbers.bfloat16().view(torch.int16).numpy().view(np.uint16)
    return numbers.numpy().astype(f"float{target.primitive_bitwidth}").view(_BITS[target])
