"""The name of this machine's GPU, for prompts."""

from __future__ import annotations

from functools import cache

import pynvml

UNKNOWN = "an NVIDIA GPU"


@cache
def gpu_here() -> str:
    """Return the first GPU's name by NVML, which needs no CUDA context; `UNKNOWN` where there is none."""
    try:
        pynvml.nvmlInit()
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    except pynvml.NVMLError:
        return UNKNOWN
    return name if isinstance(name, str) else str(name, "utf-8")
