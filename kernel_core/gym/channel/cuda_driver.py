"""Calls of the CUDA driver that torch does not offer."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from kernel_core.errors import GymUnavailable

_OUT_OF_MEMORY = 2


@functools.cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def call_driver(name: str, *arguments: Any) -> None:
    """Call a function of `libcuda`. Raises torch's `OutOfMemoryError`, or `GymUnavailable` with the
    function's name."""
    error = getattr(_driver(), name)(*arguments)
    if error == _OUT_OF_MEMORY:
        raise torch.cuda.OutOfMemoryError(f"{name} found no memory")
    if error:
        text = ctypes.c_char_p()
        _driver().cuGetErrorName(error, ctypes.byref(text))
        error_name = (text.value or b"an unknown error").decode()
        raise GymUnavailable(
            f"the GPU driver's {name} failed: {error_name}; free the GPU's memory, then run again"
        )
