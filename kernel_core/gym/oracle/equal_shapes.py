"""Sizes that change together because inputs have one shape.

Two inputs `torch.rand(64, 512)` and `torch.randint(0, 9, (64, 512))` have one shape, and no names tell their
numbers apart. A kernel may rely on the shape that they share, as that of `gather` and its index. So the
numbers of one dimension of inputs with one shape are one size. Constants with names of their own remain
several sizes, even if their values are equal.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeVar

from kernel_core.gym.channel.torch_ops import tensors_in
from kernel_core.gym.oracle.need import inputs_at
from kernel_core.problems.source import at_precision, parse_problem, with_members
from kernel_core.records import Constant, Precision, Problem

_Size = TypeVar("_Size", bound=Constant)
_UNNAMED = "get_inputs["
"""The beginning of the names that `with_members` gives to numbers in the body of `get_inputs`."""


class SharedSizes:
    """The sizes of a problem that change together."""

    def __init__(self, problem: Problem) -> None:
        has_several = sum(name.startswith(_UNNAMED) for name in problem.constants) > 1
        self._groups = _groups(problem.source, problem.precision) if has_several else {}

    def with_size(self, name: str, size: _Size) -> dict[str, _Size]:
        """Return this size of all names that change with `name`, itself included."""
        return dict.fromkeys(self._groups.get(name, (name,)), size)

    def leads(self, name: str) -> bool:
        """Return True for the first of the names that change together, and for a name that changes alone."""
        return self._groups.get(name, (name,))[0] == name


@functools.lru_cache(maxsize=1024)
def _groups(source: str, precision: Precision) -> Mapping[str, tuple[str, ...]]:
    """Return the names that change with each name that does not change alone."""
    problem = with_members(at_precision(parse_problem(source, id="shapes", suite="shapes"), precision))
    unnamed = [
        (name, value)
        for name, value in problem.constants.items()
        if name.startswith(_UNNAMED) and type(value) is int
    ]
    own = _shapes(problem, {})
    by_dimension = defaultdict[tuple[tuple[int, ...], int, int], list[str]](list)
    for name, value in unnamed:
        for shape, other in zip(own, _shapes(problem, {name: 2 * value}), strict=False):
            for dimension, (size, changed) in enumerate(zip(shape, other, strict=False)):
                if size != changed:
                    by_dimension[shape, dimension, value].append(name)
    groups = dict[str, tuple[str, ...]]()
    for names in by_dimension.values():
        joined = {other for name in names for other in groups.get(name, (name,))}
        groups |= dict.fromkeys(joined, tuple(name for name, _ in unnamed if name in joined))
    return groups


def _shapes(problem: Problem, sizes: Mapping[str, Constant]) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in tensors_in(inputs_at(problem, sizes) or [])]
