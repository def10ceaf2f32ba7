"""Resources of a multiprocessor that a compiled kernel takes, and how many programs fit at once."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch

from kernel_core.gym.channel.cuda_driver import call_driver

_LANES, _WORD_BYTES = 32, 4


@dataclass(frozen=True, slots=True)
class KernelResources:
    """Resources of one launch: registers and spilled bytes a thread, shared bytes a program, occupancy in [0,
    1]."""

    registers: int
    spilled_bytes: int
    shared_bytes: int
    occupancy: float


def resources_of(compiled: Any) -> KernelResources | None:
    """The resources of a launched kernel, by Triton's compiler and the driver; None where they are
    unknown."""
    try:
        warps, shared_bytes = int(compiled.metadata.num_warps), int(compiled.metadata.shared)
        registers, spilled_words = int(compiled.n_regs), int(compiled.n_spills)
        function = ctypes.c_void_p(int(compiled.function))
    except (AttributeError, TypeError, ValueError):
        return None
    return resources_on_device(
        function,
        num_threads=warps * _LANES,
        dynamic_bytes=shared_bytes,
        static_bytes=0,
        registers=registers,
        spilled_bytes=_WORD_BYTES * spilled_words,
    )


def resources_on_device(
    function: ctypes.c_void_p,
    *,
    num_threads: int,
    dynamic_bytes: int,
    static_bytes: int,
    registers: int,
    spilled_bytes: int,
) -> KernelResources:
    """The resources with the driver's occupancy. Shared bytes are requested at a launch or compiled in."""
    blocks = ctypes.c_int()
    call_driver(
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        ctypes.byref(blocks),
        function,
        ctypes.c_int(num_threads),
        ctypes.c_size_t(dynamic_bytes),
    )
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    return KernelResources(
        registers=registers,
        spilled_bytes=spilled_bytes,
        shared_bytes=dynamic_bytes + static_bytes,
        occupancy=blocks.value * num_threads / device.max_threads_per_multi_processor,
    )
