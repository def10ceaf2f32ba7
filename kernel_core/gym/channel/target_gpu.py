"""The GPU that Triton names where there is none: to kernels, to a candidate's host code, to a compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
from triton.backends.compiler import GPUTarget

from kernel_core.gym.channel.gpu_specs import GPUS
from kernel_core.gym.channel.launch_limits import LIMITS

_CAPABILITIES = {"H200": 90, "H100": 90, "A100": 80, "L4": 89}
"""Compute capability of each GPU that times can be predicted for."""
_WARP_SIZE = 32
_REGISTERS = 65536
"""Registers of a multiprocessor, the same on all GPUs of the table."""
_RESERVED_SHARED_BYTES = 1 << 10
"""CUDA's own, of each program."""


def target_of(gpu: str) -> GPUTarget:
    """The target of Triton's compiler."""
    return GPUTarget("cuda", _CAPABILITIES[gpu], _WARP_SIZE)


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of `torch.cuda.get_device_properties`, by torch's names."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    L2_cache_size: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    shared_memory_per_block: int = 48 << 10
    regs_per_multiprocessor: int = _REGISTERS
    max_threads_per_multi_processor: int = 2048
    warp_size: int = _WARP_SIZE


def properties_of(gpu: str, num_processors: int | None = None) -> Properties:
    """The properties of a GPU that times can be predicted for, or of one like it with fewer
    multiprocessors."""
    capability, known = _CAPABILITIES[gpu], GPUS[gpu]
    shared = LIMITS[capability].shared_bytes
    return Properties(
        name=f"NVIDIA {gpu}",
        major=capability // 10,
        minor=capability % 10,
        total_memory=known.memory_bytes,
        multi_processor_count=num_processors or known.num_processors,
        L2_cache_size=known.l2_bytes,
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=shared + _RESERVED_SHARED_BYTES,
        max_threads_per_multi_processor=1536 if capability == 89 else 2048,
    )


def answer_for(gpu: str, num_processors: int | None = None) -> None:
    """Have Triton say that this GPU is there, in this process, for good. `tl.target_info` and
    `triton.runtime.driver.active` both ask the active driver, so what branches on either goes the same way
    where kernels are interpreted, where they are compiled, and on such a GPU."""
    driver: Any = _Driver(gpu, num_processors)
    triton.runtime.driver.set_active(driver)


class _Driver:
    """The part of a driver that works without a device."""

    def __init__(self, gpu: str, num_processors: int | None) -> None:
        self._target = target_of(gpu)
        self.utils = _Utilities(properties_of(gpu, num_processors))

    def get_current_target(self) -> GPUTarget:
        """See `triton.backends.driver.DriverBase`."""
        return self._target

    def get_current_device(self) -> int:
        """See `triton.backends.driver.DriverBase`."""
        return 0

    def set_current_device(self, device: int) -> None:
        """See `triton.backends.driver.DriverBase`: there is one."""

    def get_current_stream(self, device: int) -> int:
        """See `triton.backends.driver.DriverBase`: the default one."""
        return 0

    def get_device_interface(self) -> Any:
        """See `triton.backends.driver.DriverBase`."""
        import torch

        return torch.cuda

    def get_active_torch_device(self) -> Any:
        """See `triton.backends.driver.DriverBase`."""
        import torch  # compiler processes have no torch

        return torch.device("cuda", 0)


class _Utilities:
    """Triton's utilities for each kind of device, from which kernels' host code reads numbers."""

    def __init__(self, properties: Properties) -> None:
        self._properties = properties

    def get_device_properties(self, device: int) -> dict[str, int]:
        """The properties by Triton's names."""
        known = self._properties
        return {
            "max_shared_mem": known.shared_memory_per_block_optin,
            "max_num_regs": known.regs_per_multiprocessor,
            "multiprocessor_count": known.multi_processor_count,
            "warpSize": known.warp_size,
        }
