"""Reductions and scans with a function of a kernel's own, where kernels are interpreted: pair by pair.

The interpreter goes from one element to the next and calls the function for each. A GPU combines neighbours,
then what came of neighbours, and so on: a function that is not associative is right here in the one order and
wrong in the other. So it is done here, with a call for all pairs at once, which is also quicker by as many.
And where a kernel leaves open which of equal values counts, it is the last: the interpreter takes the first,
as torch does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.runtime import interpreter

from kernel_core.gym.untrusted.interpreter.race_detector import Race

Blocks = list[npt.NDArray[Any]]
"""The blocks of the values that are combined together, as the function takes and gives them."""


def combine_in_pairs() -> None:
    """Patch the interpreter of this process for good."""
    reduction: Any = interpreter.ReduceOps
    scan: Any = interpreter.ScanOps
    reduction.apply_impl = _with_places(reduction.apply_impl)
    reduction.generic_reduce = _else_one_by_one(_reduce, reduction.generic_reduce)
    scan.generic_scan = _else_one_by_one(_scan, scan.generic_scan)
    scan.cumsum, scan.cumprod = _scanning(np.add), _scanning(np.multiply)


def _with_places(apply: Callable[..., Any]) -> Callable[..., Any]:
    """The extreme values with their places. A row of NaNs, such as a masked one, has the first place."""
    extremes = (
        (tl.standard._argmax_combine_tie_break_fast, np.nanmax, np.nanargmax, True),
        (tl.standard._argmin_combine_tie_break_fast, np.nanmin, np.nanargmin, True),
        (tl.standard._argmax_combine_tie_break_left, np.nanmax, np.nanargmax, False),
        (tl.standard._argmin_combine_tie_break_left, np.nanmin, np.nanargmin, False),
    )

    def reduce(self: Any, given: Any) -> Any:
        for combine, find, find_place, is_last in extremes:
            if self.combine_fn is combine:
                data = given[0].handle.data
                empty = np.isnan(data).all(self.axis, keepdims=True)
                data = np.where(empty, np.zeros_like(data), data)
                turned = self.to_tensor(np.flip(data, self.axis) if is_last else data, given[0].dtype)
                extreme, place = self.min_max(turned, find, find_place)
                if is_last:
                    place.handle.data = data.shape[self.axis] - 1 - place.handle.data
                return extreme, place
        return apply(self, given)

    return reduce


def _else_one_by_one(in_pairs: Callable[..., Any], one_by_one: Callable[..., Any]) -> Callable[..., Any]:
    """A function may be one of numbers only: it branches. What is wrong with one is said of its numbers."""

    def combine(self: Any, given: Any) -> Any:
        try:
            return in_pairs(self, given)
        except Race:
            raise
        except Exception:
            return one_by_one(self, given)

    return combine


def _reduce(self: Any, given: Sequence[Any]) -> list[Any]:
    blocks = [
        tensor.handle.data if self.axis is not None else tensor.handle.data.reshape(-1) for tensor in given
    ]
    axis = (self.axis or 0) % blocks[0].ndim
    combine = _Combined(self, given)
    while blocks[0].shape[axis] > 1:
        blocks = combine(*_neighbours(blocks, axis))
    if self.axis is None:
        kept = (1,) * given[0].handle.data.ndim if self.keep_dims else ()
        blocks = [block.reshape(kept) for block in blocks]
    elif not self.keep_dims:
        blocks = [block.squeeze(axis) for block in blocks]
    return [self.to_tensor(block, tensor.dtype) for block, tensor in zip(blocks, given, strict=True)]


def _scan(self: Any, given: Sequence[Any]) -> list[Any]:
    blocks = [tensor.handle.data for tensor in given]
    scanned = _scanned(_Combined(self, given), blocks, self.axis % blocks[0].ndim)
    return [self.to_tensor(block, tensor.dtype) for block, tensor in zip(scanned, given, strict=True)]


def _scanning(operate: np.ufunc) -> Callable[..., Any]:
    """A running sum or product in a tree, as on a GPU: its error grows with the logarithm of the row."""

    def scan(self: Any, given: Any) -> list[Any]:
        data = given.handle.data
        (scanned,) = _scanned(
            lambda left, right: [operate(left[0], right[0], dtype=data.dtype)], [data], self.axis % data.ndim
        )
        return [self.to_tensor(scanned, given.dtype)]

    return scan


def _scanned(combine: Callable[[Blocks, Blocks], Blocks], blocks: Blocks, axis: int) -> Blocks:
    """Scan pairs first, which gives every second value; one more combination gives the values between."""
    if blocks[0].shape[axis] == 1:
        return blocks
    firsts, seconds = _neighbours(blocks, axis)
    ends = _scanned(combine, combine(firsts, seconds), axis)
    between = combine([np.roll(end, 1, axis) for end in ends], firsts)
    scanned = [np.empty_like(block) for block in blocks]
    for whole, begin, end, first in zip(scanned, between, ends, firsts, strict=True):
        of_axis = np.moveaxis(whole, axis, 0)
        of_axis[0::2], of_axis[1::2] = np.moveaxis(begin, axis, 0), np.moveaxis(end, axis, 0)
        of_axis[0] = np.moveaxis(first, axis, 0)[0]
    return scanned


def _neighbours(blocks: Blocks, axis: int) -> tuple[Blocks, Blocks]:
    before = (slice(None),) * axis
    firsts, seconds = (*before, slice(0, None, 2)), (*before, slice(1, None, 2))
    return [block[firsts] for block in blocks], [block[seconds] for block in blocks]


class _Combined:
    """The function, of blocks of one shape."""

    def __init__(self, operation: Any, given: Sequence[Any]) -> None:
        self._operation = operation
        self._dtypes = [tensor.dtype for tensor in given]

    def __call__(self, left: Blocks, right: Blocks) -> Blocks:
        tensors = [
            self._operation.to_tensor(block, dtype)
            for side in (left, right)
            for block, dtype in zip(side, self._dtypes, strict=True)
        ]
        made = self._operation.combine_fn.fn(*tensors)
        values = made if isinstance(made, tuple) else (made,)
        plain = [value.handle.data if isinstance(value, tl.tensor) else value for value in values]
        return [
            np.broadcast_to(value, block.shape).astype(block.dtype)
            for value, block in zip(plain, left, strict=True)
        ]
