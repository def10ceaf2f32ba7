"""Counts the work of a module's calls in one run, where it reaches the module's results."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import nn
from torch.overrides import resolve_name

from kernel_core.generator.calls import short_name, tensors_of
from kernel_core.generator.library_calls import ATTENTION, PRODUCTS, LibraryCalls
from kernel_core.generator.product_work import OPERATIONS_PER_BYTE, num_operations
from kernel_core.generator.recorder import Recorder

_WITHOUT_WORK = PRODUCTS - {ATTENTION} | {
    "interpolate",
    "upsample",
    *("contiguous", "clone", "copy", "detach", "to", "float", "half", "bfloat16", "double", "int", "long"),
    *("bool", "type", "type_as", "cat", "concat", "concatenate", "stack", "hstack", "vstack", "pad", "tile"),
    *("repeat", "repeat_interleave", "expand", "expand_as", "reshape", "flatten", "roll", "flip", "tril"),
    *("triu", "index", "index_select", "gather", "take", "take_along_dim", "getitem", "setitem", "embedding"),
    *("zeros", "ones", "full", "empty", "arange", "eye", "tensor", "meshgrid", "zeros_like", "ones_like"),
    *("full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "dropout"),
    *("unfold", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "one_hot", "scatter", "index_put"),
}
"""Products, which stay torch's, and calls that move, repeat, make or convert data."""


@dataclass
class _Step:
    """A call of torch's."""

    name: str
    read: set[int]
    """Memory that it reads."""
    written: set[int]
    """Memory that it writes."""
    work: int
    """Bytes of computation that kernels can take over."""
    cost: int
    """Bytes of the call, with operations of a product as bytes."""


class Watch(Recorder):
    """Counts bytes, and records no values."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, LibraryCalls(PRODUCTS))
        self.steps: list[_Step] = []
        self.is_over = False
        self._modules = {path: module for module in model.modules() for path in [self._paths[id(module)]]}
        self._alive: list[Any] = []
        """Tensors of all calls: memory that is gone would give its number to another."""
        self._works: list[int] = []
        self.cost = 0
        """Bytes of all calls that the results need, with operations of products as bytes."""

    def finish(self, inputs: Any, outputs: Any) -> None:
        """Keep the work of calls that the inputs reach and the results need."""
        self.is_over = True
        reached = {_memory(leaf) for leaf in tensors_of(inputs)}
        for step in self.steps:
            if step.read & reached:
                reached |= step.written
            else:
                step.work = 0
        needed = {_memory(leaf) for leaf in tensors_of(outputs)}
        works: list[int] = []
        for step in reversed(self.steps):
            is_needed = bool(step.written & needed)
            needed |= step.read if is_needed else set()
            works.append(step.work * is_needed)
            self.cost += step.cost * is_needed
        self._works = [0, *accumulate(reversed(works))]

    def work(self, first: int, last: int) -> int:
        """Bytes of the computation in a range of calls."""
        return self._works[last] - self._works[first]

    def calls(self, first: int, last: int) -> tuple[str, ...]:
        """Names of the functions in a range of calls."""
        return tuple(step.name for step in self.steps[first:last])

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name = resolve_name(function) or getattr(function, "__name__", str(function))
        made = args[0] if short_name(name) == "setitem" else result
        self._add(short_name(name), (args, kwargs), made)
        return result

    def _call(self, spelled: str, args: Any, kwargs: Any, result: Any, base: str, **apart: Any) -> Any:
        self._add(base, (args, kwargs, list(self._modules[spelled].parameters())), result)
        return result

    def _add(self, base: str, given: Any, result: Any) -> None:
        tensors, results = tensors_of(given), tensors_of(result)
        if not results:
            return
        self._alive += [*tensors, *results]
        read, written = {*map(_memory, tensors)}, {*map(_memory, results)}
        own = {id(tensor) for tensor in tensors}
        is_view = all(id(made) not in own and _memory(made) in read for made in results)
        total = 0 if is_view else sum(used.numel() * used.element_size() for used in (*tensors, *results))
        work = 0 if base in _WITHOUT_WORK else total
        cost = total + num_operations(base, tensors, results[0]) // OPERATIONS_PER_BYTE
        self.steps.append(_Step(base, read, written, work, cost))


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
