"""How much memory a judgement takes, estimated before anything is drawn."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from kernel_core.errors import ConfigError
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.problems.source import resize

SMALL = 2**26
"""Product of a problem's whole numbers up to which its tensors are small, whatever their shapes."""
TOLD_FROM_GB = 1.0
COPIES = 3
"""At least: the tensors, and a float64 copy of them for the reference."""


def require_memory(request: JudgeRequest, device: str) -> None:
    """Say on stderr what a large problem takes on a CPU; `ConfigError` where this machine has less."""
    sizes = {**request.problem.constants, **request.run_sizes(device)}
    numbers = [value for value in sizes.values() if type(value) is int and value > 1]
    if device != "cpu" or math.prod(numbers) <= SMALL:
        return
    tensors_gb = _tensor_bytes(request, device) / 1e9
    needed_gb, free_gb = COPIES * tensors_gb, _available_bytes() / 1e9
    told = (
        f"{request.problem.id} at {', '.join(f'{name}={value}' for name, value in sizes.items())}: "
        f"tensors of {tensors_gb:.1f} GB, at least {needed_gb:.1f} GB to judge"
    )
    if needed_gb > free_gb:
        raise ConfigError(f"{told}, and {free_gb:.1f} GB are free: set smaller sizes with --set NAME=VALUE")
    if needed_gb >= TOLD_FROM_GB:
        print(f"dojo: {told}; --set NAME=VALUE makes it smaller", file=sys.stderr)


def _tensor_bytes(request: JudgeRequest, device: str) -> int:
    """Bytes of inputs, weights and outputs, from their shapes alone; 0 where a problem hides them."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kernel_core.gym.oracle.problem_module import ProblemModule

    problem = resize(request.problem, request.run_sizes(device))
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            module = ProblemModule(problem.source, problem.id, problem.precision)
            arguments, inputs = module.arguments(), module.inputs()
            model = module.construct(arguments)
            return _bytes_of([inputs, dict(model.state_dict()), model(*inputs)])
    except Exception:  # shapes that depend on values, numpy: the judge itself will tell
        return 0


def _bytes_of(value: Any) -> int:
    import torch

    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(map(_bytes_of, value.values()))
    return sum(map(_bytes_of, value)) if isinstance(value, list | tuple) else 0


def _available_bytes() -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024
