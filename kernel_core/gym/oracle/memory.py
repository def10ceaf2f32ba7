"""The memory that a judgement takes, estimated before anything is drawn."""

from __future__ import annotations

import math
from pathlib import Path

from kernel_core.errors import ConfigError
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.oracle.small_sizes import with_small_sizes
from kernel_core.problems.source import with_members

SMALL = 2**26
"""Product of a problem's whole numbers up to which its tensors are small, whatever their shapes."""
TOLD_FROM_GB = 1.0
COPIES = 3
"""At least: the tensors, and a float64 copy of them for the reference."""


def require_memory(request: JudgeRequest, device: str) -> str | None:
    """Return in words the memory that a large problem takes on a CPU; None for a small one, or on a GPU.

    Raises `ConfigError` where this machine has less.
    """
    if request.sizes is None and device == "cpu":
        request = request.model_copy(update={"problem": with_small_sizes(request.problem)})
    sizes = {**with_members(request.problem).constants, **request.run_sizes(device)}
    numbers = [value for value in sizes.values() if type(value) is int and value > 1]
    if device != "cpu" or math.prod(numbers) <= SMALL:
        return None
    from kernel_core.gym.oracle.need import need_of  # with torch, which takes seconds

    need = need_of(request.problem, request.run_sizes(device))
    tensors_gb = need.num_bytes / 1e9 if need is not None else 0.0
    needed_gb, free_gb = COPIES * tensors_gb, _available_bytes() / 1e9
    message = (
        f"{request.problem.id} at {', '.join(f'{name}={value}' for name, value in sizes.items())}: "
        f"tensors of {tensors_gb:.1f} GB, at least {needed_gb:.1f} GB to judge"
    )
    if needed_gb < TOLD_FROM_GB:
        return None
    smaller = " ".join(
        f"--set {name}={n}" for name, n in with_small_sizes(request.problem).cpu_constants.items()
    )
    hint = f"smaller sizes, as {smaller or '--set NAME=VALUE'}"
    if needed_gb > free_gb:
        raise ConfigError(f"{message}, and {free_gb:.1f} GB are free: set {hint}")
    return f"{message}; it takes less at {hint}"


def _available_bytes() -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024
