"""How much memory a problem's tensors take at some sizes, and sizes at which a CPU judges it in seconds.

Nothing is drawn: tensors have shapes and no data (PyTorch's fake tensors).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

from kernel_core.config import ProblemsConfig
from kernel_core.problems.load import load_problems
from kernel_core.problems.source import resize
from kernel_core.records import Constant, Problem

MOST_BYTES = 2**18
"""Inputs, weights and outputs together: an interpreter of kernels goes through them in seconds."""
_DIVISORS = (16, 4, 2)


def load_sized(config: ProblemsConfig) -> list[Problem]:
    """The problems that a config names, with sizes by a rule where it asks for `small` ones."""
    problems = load_problems(config)
    return list(map(with_small_sizes, problems)) if config.sizes == "small" else problems


def tensor_bytes(problem: Problem, sizes: Mapping[str, Constant]) -> int | None:
    """Bytes of inputs, weights and outputs; None where shapes do not tell, or sizes do not fit."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kernel_core.gym.oracle.problem_module import ProblemModule

    resized = resize(problem, sizes)
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.level
    logger.setLevel(logging.CRITICAL)  # it would log every refusal with its traceback
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            module = ProblemModule(resized.source, resized.id, resized.precision)
            arguments, inputs = module.arguments(), module.inputs()
            model = module.construct(arguments)
            return _bytes_of([inputs, dict(model.state_dict()), model(*inputs)])
    except Exception:  # shapes that depend on values, numpy, or channels that no longer fit
        return None
    finally:
        logger.setLevel(before)


def with_small_sizes(problem: Problem) -> Problem:
    """The problem with sizes for a CPU by a rule, if it names none itself.

    The largest whole number of the module is divided as long as the problem still runs and its tensors
    become smaller, down to `MOST_BYTES`. At last each is made odd where the problem allows that, because a
    kernel without masks is right at powers of two. Whole numbers of one value are also tried together.
    """
    sizes = {name: value for name, value in problem.constants.items() if type(value) is int and value > 1}
    now = tensor_bytes(problem, {}) if sizes and not problem.cpu_constants else None
    if now is None:
        return problem
    found = dict(sizes)
    while now > MOST_BYTES and (smaller := _smaller(problem, found, now)) is not None:
        found, now = smaller
    for name, value in found.items():
        odd = found | {name: value + 1}
        if value % 2 == 0 and value != sizes[name] and tensor_bytes(problem, odd) is not None:
            found = odd
    changed = {name: value for name, value in found.items() if value != sizes[name]}
    return problem.model_copy(update={"cpu_constants": changed})


def _smaller(problem: Problem, sizes: dict[str, int], now: int) -> tuple[dict[str, int], int] | None:
    """The first division that the problem takes and that makes its tensors smaller."""
    for tried in _divided(sizes, math.ceil(now / MOST_BYTES)):
        taken = tensor_bytes(problem, tried)
        if taken is not None and taken < now:
            return tried, taken
    return None


def _divided(sizes: dict[str, int], excess: int) -> Iterator[dict[str, int]]:
    """Sizes with one value divided, the largest first and by no more than there is too much."""
    for divisor in _DIVISORS:
        for value in sorted(set(sizes.values()), reverse=True):
            names = [name for name, one in sizes.items() if one == value]
            if value < divisor or divisor > max(2, excess):
                continue
            yield from (sizes | {name: value // divisor} for name in names)
            if len(names) > 1:
                yield sizes | dict.fromkeys(names, value // divisor)


def _bytes_of(value: Any) -> int:
    import torch

    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(map(_bytes_of, value.values()))
    return sum(map(_bytes_of, value)) if isinstance(value, list | tuple) else 0
