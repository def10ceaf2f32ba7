"""A judge's platform: versions, and the state of its GPU as NVML reports it."""

from __future__ import annotations

import contextlib
import os
import platform
from functools import cached_property
from typing import Any

import pynvml
import torch
import triton

from kernel_core.gym.sandbox import sandbox
from kernel_core.gym.timing.timing_stats import Clocks
from kernel_core.records import Platform

_REASONS = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "thermal slowdown",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "hardware thermal slowdown",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
}


def keep_to_gpu(index: int) -> None:
    """Let this process and its future children have one GPU, the one that CUDA would give this number; CUDA
    itself is not touched. NVML stays open, because it may find less when the other GPUs are hidden."""
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[index] if visible else str(index)
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        handle = _handle_of(os.environ["CUDA_VISIBLE_DEVICES"])
        if handle is not None and sandbox.keep_one_gpu(pynvml.nvmlDeviceGetMinorNumber(handle)):
            # Visible GPUs are numbered.
            os.environ["CUDA_VISIBLE_DEVICES"] = pynvml.nvmlDeviceGetUUID(handle)


def gpu_architecture() -> str:
    """The current GPU's, as compilers write it: `90` of an H200."""
    return "{}{}".format(*torch.cuda.get_device_capability())


def _handle_of(name: str) -> Any:
    """NVML's handle of what CUDA calls so; None where the two may number GPUs in different orders."""
    if not name.isdigit():
        return pynvml.nvmlDeviceGetHandleByUUID(name)
    handles = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
    alike = len({pynvml.nvmlDeviceGetName(handle) for handle in handles}) == 1
    same_order = alike or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    return handles[int(name)] if same_order and int(name) < len(handles) else None


class NvmlDevice:
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
        """The clocks now."""
        if self._handle is None:
            return Clocks()
        try:
            mhz = pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM)
            bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
        except pynvml.NVMLError:
            return Clocks()
        return Clocks(mhz, tuple(name for bit, name in _REASONS.items() if bits & bit))


def describe_platform(gpu: NvmlDevice | None = None) -> Platform:
    """The versions that figures depend on."""
    return Platform(
        python=platform.python_version(),
        torch=torch.__version__,
        triton=triton.__version__,
        gpu=gpu.name if gpu else None,
        driver=gpu.driver if gpu else None,
    )
