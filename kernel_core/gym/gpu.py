"""What a judge runs on: versions, and the state of its GPU as NVML reports it."""

from __future__ import annotations

import platform
from functools import cached_property

import pynvml
import torch
import triton

from kernel_core.gym.clock import Clocks
from kernel_core.records import Platform

_REASONS = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "thermal slowdown",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "hardware thermal slowdown",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
}


class Gpu:
    """The current CUDA device. Where NVML does not answer, its figures are unknown."""

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.name: str = properties.name
        self.total_bytes: int = properties.total_memory
        self.cache_bytes: int = properties.L2_cache_size
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
        except pynvml.NVMLError:
            self._handle = None

    @cached_property
    def driver(self) -> str | None:
        """The driver's version."""
        return None if self._handle is None else str(pynvml.nvmlSystemGetDriverVersion())

    @cached_property
    def bytes_per_s(self) -> float | None:
        """The peak rate of its memory: two transfers a clock over the width of its bus."""
        if self._handle is None:
            return None
        try:
            mhz = pynvml.nvmlDeviceGetMaxClockInfo(self._handle, pynvml.NVML_CLOCK_MEM)
            bits = pynvml.nvmlDeviceGetMemoryBusWidth(self._handle)
        except pynvml.NVMLError:
            return None
        return 2e6 * mhz * bits / 8

    def clocks(self) -> Clocks:
        """As they are now."""
        if self._handle is None:
            return Clocks()
        try:
            mhz = pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM)
            bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
        except pynvml.NVMLError:
            return Clocks()
        return Clocks(mhz, tuple(name for bit, name in _REASONS.items() if bits & bit))


def describe_platform(gpu: Gpu | None = None) -> Platform:
    """The versions that figures depend on."""
    return Platform(
        python=platform.python_version(),
        torch=torch.__version__,
        triton=triton.__version__,
        gpu=gpu.name if gpu else None,
        driver=gpu.driver if gpu else None,
    )
