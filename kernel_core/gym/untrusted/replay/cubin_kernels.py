"""Kernels of a candidate's CUDA C++ as the replay launches them: from the device code alone."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import torch

from kernel_core.gym.channel.cuda_driver import call_driver
from kernel_core.gym.untrusted.replay.kernel_resources import KernelResources, resources_on_device

_SHARED_BYTES, _LOCAL_BYTES, _REGISTERS, _MAX_DYNAMIC_SHARED = 1, 3, 4, 8
_BUFFER, _BUFFER_SIZE, _END = 1, 2, 0
_STATIC_ROOM = 48 << 10
"""Shared memory above this must be asked for."""


class DeviceImage:
    """The device code of one build, in this process's context."""

    def __init__(self, image: bytes) -> None:
        self._module = ctypes.c_void_p()
        call_driver("cuModuleLoadData", ctypes.byref(self._module), image)

    def kernel(self, symbol: str, name: str) -> ImageKernel:
        """A kernel by its symbol. Raises `GymUnavailable` when there is none."""
        function = ctypes.c_void_p()
        call_driver("cuModuleGetFunction", ctypes.byref(function), self._module, symbol.encode())
        return ImageKernel(name, function)


@dataclass(frozen=True, slots=True)
class ImageKernel:
    """One `__global__` function."""

    name: str
    function: ctypes.c_void_p

    def launch(self, grid: list[int], options: dict[str, int], parameters: bytes) -> None:
        """Queue it on the current stream."""
        shared, size = options["shared"], ctypes.c_size_t(len(parameters))
        if shared > _STATIC_ROOM:
            call_driver("cuFuncSetAttribute", self.function, _MAX_DYNAMIC_SHARED, shared)
        buffer = ctypes.create_string_buffer(parameters, len(parameters))
        extra = (ctypes.c_void_p * 5)(
            _BUFFER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), _END
        )
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        sizes = [ctypes.c_uint(size) for size in (*grid, *_block(options), shared)]
        call_driver("cuLaunchKernel", self.function, *sizes, stream, None, extra)

    def resources(self, options: dict[str, int]) -> KernelResources:
        """The resources of a multiprocessor that such a launch takes."""
        return resources_on_device(
            self.function,
            num_threads=math.prod(_block(options)),
            dynamic_bytes=options["shared"],
            static_bytes=self._attribute(_SHARED_BYTES),
            registers=self._attribute(_REGISTERS),
            spilled_bytes=self._attribute(_LOCAL_BYTES),
        )

    def _attribute(self, which: int) -> int:
        value = ctypes.c_int()
        call_driver("cuFuncGetAttribute", ctypes.byref(value), which, self.function)
        return value.value


def _block(options: dict[str, int]) -> list[int]:
    return [options[name] for name in ("block_x", "block_y", "block_z")]
