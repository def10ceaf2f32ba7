"""The host's side of a launch, which a C compiler makes for each signature in some of Triton's versions."""

from __future__ import annotations

import functools
from typing import Any

import triton
from triton.compiler import CompiledKernel


@functools.lru_cache(maxsize=1024)
def make_launcher(kernel: Any) -> None:
    """Have a compiled kernel's launcher made now, while no process waits for the device. The first launch
    finds it in the cache folder. Other values have no launcher."""
    if isinstance(kernel, CompiledKernel):
        triton.runtime.driver.active.launcher_cls(kernel.src, kernel.metadata)
