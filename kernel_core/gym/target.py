"""The GPU that Triton names where there is none: to kernels, to a candidate's host code, to a compiler."""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget

_CAPABILITIES = {"H200": 90, "H100": 90, "A100": 80, "L4": 89}
"""Compute capability of each GPU that times can be predicted for."""
_WARP_SIZE = 32


def target_of(gpu: str) -> GPUTarget:
    """What Triton compiles for."""
    return GPUTarget("cuda", _CAPABILITIES[gpu], _WARP_SIZE)


def answer_for(gpu: str) -> None:
    """Have Triton say that this GPU is there, in this process, for good. `tl.target_info` and
    `triton.runtime.driver.active` both ask the active driver, so what branches on either goes the same way
    where kernels are interpreted, where they are compiled, and on such a GPU."""
    driver: Any = _Driver(target_of(gpu))
    triton.runtime.driver.set_active(driver)


class _Driver:
    """As much of a driver as there is without a device."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        """See `triton.backends.driver.DriverBase`."""
        return self._target
