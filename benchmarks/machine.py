"""Description of the machine that a figure was measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path


def describe_machine() -> str:
    """CPU, cores, GPU if there is one, and the versions that matter, in one line."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "triton", "transformers")]
    parts = [f"{len(os.sched_getaffinity(0))} cores of {_cpu_model()}", *_gpus()]
    return ", ".join([*parts, f"Python {platform.python_version()}", *versions])


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _gpus() -> list[str]:
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
