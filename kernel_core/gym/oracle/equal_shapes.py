"""Sizes that change together because inputs have one shape.

Two inputs `torch.rand(64, 512)` and `torch.randint(0, 9, (64, 512))` have one shape, and no names tell their
numbers apart. A kernel may rely on the shape that they share, as that of `gather` and its index. So the
numbers of one dimension of inputs with one shape are one size. Constants with names of their own remain
several sizes, even if their values are equal.

A dimension below `LEAST_NUMBER` without a name keeps its size, such as four heads of keys. A multiple of it
on the same axis of another input, such as sixteen heads of queries, remains a multiple.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from kernel_core.gym.channel.torch_ops import tensors_in
from kernel_core.gym.oracle.need import inputs_at
from kernel_core.problems.source import LEAST_NUMBER, at_precision, parse_problem, with_members
from kernel_core.records import Constant, Precision, Problem

_Size = TypeVar("_Size", bound=Constant)
_UNNAMED = "get_inputs["
"""The beginning of the names that `with_members` gives to numbers in the body of `get_inputs`."""


class SharedSizes:
    """The sizes of a problem that change together."""

    def __init__(self, problem: Problem) -> None:
        has_several = sum(name.startswith(_UNNAMED) for name in problem.constants) > 1
        made = _shared(problem.source, problem.precision) if has_several else _Shared({}, ())
        self._groups, self._multiples = made

    def with_size(self, name: str, size: _Size) -> dict[str, _Size]:
        """Return this size of all names that change with `name`, itself included."""
        return dict.fromkeys(self._groups.get(name, (name,)), size)

    def leads(self, name: str) -> bool:
        """Return True for the first of the names that change together, and for a name that changes alone."""
        return self._groups.get(name, (name,))[0] == name

    def keep_multiples(self, sizes: Mapping[str, Constant]) -> bool:
        """Return True if sizes remain multiples of the dimensions of other inputs that keep theirs."""
        at = ((sizes.get(name), divisor) for name, divisor in self._multiples)
        return all(type(size) is not int or size % divisor == 0 for size, divisor in at)


class _Shared(NamedTuple):
    groups: Mapping[str, tuple[str, ...]]
    """The names that change with each name that does not change alone."""
    multiples: tuple[tuple[str, int], ...]
    """Names with a small dimension of another input on the same axis that divides their size."""


@functools.lru_cache(maxsize=1024)
def _shared(source: str, precision: Precision) -> _Shared:
    problem = with_members(at_precision(parse_problem(source, id="shapes", suite="shapes"), precision))
    unnamed = [
        (name, value)
        for name, value in problem.constants.items()
        if name.startswith(_UNNAMED) and type(value) is int
    ]
    own = _shapes(problem, {})
    by_dimension = defaultdict[tuple[tuple[int, ...], int, int], list[str]](list)
    multiples = list[tuple[str, int]]()
    for name, value in unnamed:
        for shape, other in zip(own, _shapes(problem, {name: 2 * value}), strict=False):
            for dimension, (size, changed) in enumerate(zip(shape, other, strict=False)):
                if size != changed:
                    by_dimension[shape, dimension, value].append(name)
                    beside = {its[dimension] for its in own if len(its) == len(shape)}
                    multiples += [
                        (name, few) for few in beside if 1 < few < LEAST_NUMBER and value % few == 0
                    ]
    groups = dict[str, tuple[str, ...]]()
    for names in by_dimension.values():
        joined = {other for name in names for other in groups.get(name, (name,))}
        groups |= dict.fromkeys(joined, tuple(name for name, _ in unnamed if name in joined))
    return _Shared(groups, tuple(dict.fromkeys(multiples)))


def _shapes(problem: Problem, sizes: Mapping[str, Constant]) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in tensors_in(inputs_at(problem, sizes) or [])]
