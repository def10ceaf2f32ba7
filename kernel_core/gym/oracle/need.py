"""The need of one pass of a problem's reference at some sizes, reckoned without data where possible."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.pytree import flatten
from kernel_core.gym.channel.torch_ops import tensors_in
from kernel_core.gym.channel.work import OperatorCounter
from kernel_core.gym.oracle.problem_module import ProblemModule, own_seeds
from kernel_core.gym.oracle.trial import tensor_bytes
from kernel_core.problems.source import resize
from kernel_core.records import Constant, Problem


@dataclass(frozen=True, slots=True)
class Need:
    """The need of a pass: bytes of inputs, weights and outputs, and operations."""

    num_bytes: int
    operations: int
    widths: tuple[int, ...]
    """The last dimensions of inputs and outputs that have more than one."""
    shapes: tuple[tuple[int, ...], ...]
    """The shapes of inputs and weights."""

    def broadcasts_more_than(self, other: Need) -> bool:
        """True if one of two inputs or weights has a dimension of one here, the other has not, and both are
        equal at `other` sizes. An operator of both may broadcast here, which is another problem."""
        changes = {  # a network has hundreds of weights, and few different shapes
            tuple(zip(reversed(shape), reversed(other_shape), strict=False))
            for shape, other_shape in zip(self.shapes, other.shapes, strict=False)
        }
        return any(
            before == other_before and now != other_now and 1 in (now, other_now)
            for first, second in itertools.combinations(changes, 2)
            for (now, before), (other_now, other_before) in zip(first, second, strict=False)
        )


def need_of(problem: Problem, sizes: Mapping[str, Constant], device: str = "meta") -> Need | None:
    """The need of a pass; None where the reference fails: its sizes do not fit together, or it reads values.

    On `meta` there are no values. A reference that reads some is run on `cpu`, at small sizes.
    """
    try:
        program = ProblemModule(resize(problem, sizes).source, problem.id, problem.precision, device)
        with own_seeds(device), warnings.catch_warnings(action="ignore"):
            module, inputs = program.construct(program.arguments()), program.inputs()
            with torch.device(device), torch.no_grad(), OperatorCounter() as counter:
                outputs = flatten(module(*inputs))[1]
    except Exception:
        return None
    if all(tensor.numel() == 0 for tensor in tensors_in(outputs)):
        return (
            None  # torch 2.11 convolves inputs smaller than the kernel on `meta`, and fails on them elsewhere
        )
    num_bytes = tensor_bytes([*inputs, *outputs, *module.parameters()])
    shapes = tuple(tuple(tensor.shape) for tensor in tensors_in([*inputs, *module.parameters()]))
    widths = tuple(tensor.shape[-1] for tensor in tensors_in([*inputs, *outputs]) if tensor.dim() > 1)
    return Need(num_bytes, sum(work.num_operations for work in counter.works), widths, shapes)


def inputs_at(problem: Problem, sizes: Mapping[str, Constant]) -> list[Any] | None:
    """The inputs without their values; None for sizes at which they cannot be made."""
    try:
        program = ProblemModule(resize(problem, sizes).source, problem.id, problem.precision, "meta")
        with own_seeds("meta"):
            return program.inputs()
    except NotAProblem:
        return None
