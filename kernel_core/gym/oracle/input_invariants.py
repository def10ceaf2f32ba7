"""The contract of a problem's inputs: what holds of every draw of a tensor, so that a kernel may rely on it.

A comment of the problem says it: `# input x: any`. Where none does, it is what the problem's own draws show:
knots are in order, a matrix is triangular, a mask is 0 or 1, probabilities sum to one, halves of a table
repeat, a scale is positive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import torch

from kernel_core.errors import NotAProblem

ENOUGH = 16
"""Draws of fewer elements in all may be alike by chance."""
_SHORTEST_ROW = 4
_SUM_ERROR = 1e-2
"""The error of a sum in half precision."""
_SAME_ZEROS = 0.9
"""The share of zeros that draws share: at random places a draw may have a few more."""
_MANY_ZEROS = 1 / 4
"""The share of zeros, at other places in each draw, from which on a tensor is sparse."""
_SPREAD, _BEYOND = 16.0, 4.0
"""Values that differ by no more than the first factor stay away from zero; by the second, others may lie
outside what was drawn."""
_COMMENT = re.compile(r"^#\s*input\s+(\w+):\s*(.*\S)\s*$", re.MULTILINE)
_MUTATES = re.compile(r"^#\s*mutates:\s*(\d+(?:\s*,\s*\d+)*)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Look:
    """Properties of one or more draws of a tensor."""

    numel: int = 0
    """The number of elements that were seen."""
    least: float = 0.0
    most: float = 0.0
    zeros: torch.Tensor | None = None
    """The places of zeros that all draws share, if there are any."""
    share_of_zeros: float = 0.0
    """The least of any draw."""
    is_mask: bool = False
    """All elements have one of two values."""
    is_rising: bool = False
    sums_to_one: bool = False
    logs_sum_to_one: bool = False
    halves_repeat: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """Invariants of all draws of a tensor."""

    as_drawn: bool = False
    """Every draw is the problem's own, as of a mask: it selects, as integers do."""
    is_any: bool = False
    """The problem says that it takes numbers of any size."""
    zeros: bool = False
    """Zeros lie where they lie in the problem's own draw."""
    is_rising: bool = False
    """Along the last dimension, in each row."""
    sums_to_one: bool = False
    """Each row, of nothing below zero."""
    logs_sum_to_one: bool = False
    """Each row is the logarithms of numbers that sum to one."""
    halves_repeat: bool = False
    """Each row is the same half twice."""
    between: tuple[float, float] | None = None
    """Positive bounds of the sizes of all values, which have the sign of `sign`."""
    sign: float = 1.0

    def impose(self, values: torch.Tensor, zeros: torch.Tensor | None) -> torch.Tensor:
        """The drawn values with the invariants imposed, in place where possible; `zeros` are the tensor's
        own."""
        if self.between is not None:
            low, high = self.between
            values = (high / low) ** values.abs_().remainder_(1.0) * (self.sign * low)
        if self.halves_repeat:
            half = values.shape[-1] // 2
            values[..., half:] = values[..., :half]
        if zeros is not None:
            values.masked_fill_(zeros, 0.0)
        if self.sums_to_one:
            values.abs_()
            values.masked_fill_(values.sum(-1, keepdim=True) == 0, 1.0)
            values.div_(values.sum(-1, keepdim=True))
        if self.logs_sum_to_one:
            values = values.log_softmax(-1)
        return values.sort(-1)[0] if self.is_rising else values


DECLARED = {
    "any": Kept(is_any=True),
    "as drawn": Kept(as_drawn=True),
    "probabilities": Kept(sums_to_one=True),
    "log-probabilities": Kept(logs_sum_to_one=True),
    "positive": Kept(between=(2.0**-4, 2.0**4)),
}
"""Traits that a comment may declare of an input."""


def declared(source: str) -> dict[str, Kept]:
    """Return the traits that a problem declares of its inputs, by their names in `forward`.

    Raises `NotAProblem`.
    """
    kinds = dict(_COMMENT.findall(source))
    if unknown := sorted({*kinds.values()} - DECLARED.keys()):
        raise NotAProblem(f"an input cannot be declared {unknown[0]!r}; there is: {', '.join(DECLARED)}")
    return {name: DECLARED[kind] for name, kind in kinds.items()}


def mutable_inputs(source: str) -> frozenset[int]:
    """The positions of the input tensors that a candidate may change: `# mutates: 0, 2`."""
    return frozenset(int(number) for numbers in _MUTATES.findall(source) for number in numbers.split(","))


def look_at(values: torch.Tensor) -> Look:
    """Constants have nothing in common that others keep: they are like weights that begin as one number."""
    if not values.numel():
        return Look()
    values = values if values.element_size() > 1 else values.float()
    least, most = (end.item() for end in values.aminmax())
    if not least < most:
        return Look(values.numel(), least, most)
    if _holds(lambda part: ((part == least) | (part == most)).all(), values):
        return Look(values.numel(), least, most, is_mask=True)
    is_enough = values.numel() >= ENOUGH
    zeros = values == 0 if is_enough and least <= 0 <= most else None
    share_of_zeros = 0.0 if zeros is None else float(zeros.sum()) / values.numel()
    has_rows = is_enough and values.shape[-1] >= _SHORTEST_ROW
    return Look(
        values.numel(),
        least,
        most,
        zeros=zeros if share_of_zeros else None,
        share_of_zeros=share_of_zeros,
        is_rising=has_rows and _holds(_is_rising, values),
        sums_to_one=has_rows and least >= 0 and _holds(_sums_to_one, values),
        logs_sum_to_one=has_rows and most <= 0 and _holds(_logs_sum_to_one, values),
        halves_repeat=has_rows and values.shape[-1] % 2 == 0 and _holds(_halves_repeat, values),
    )


def in_common(looks: Sequence[Look]) -> Kept:
    """The invariants that draws share."""
    seen = reduce(_both, looks)
    low, high = sorted((abs(seen.least), abs(seen.most)))
    is_apart = seen.numel >= ENOUGH and seen.least * seen.most > 0 and low < high <= _SPREAD * low
    is_free = not (seen.sums_to_one or seen.logs_sum_to_one)
    return Kept(
        as_drawn=seen.is_mask,
        zeros=seen.zeros is not None or seen.share_of_zeros >= _MANY_ZEROS,
        is_rising=seen.is_rising,
        sums_to_one=seen.sums_to_one,
        logs_sum_to_one=seen.logs_sum_to_one,
        halves_repeat=seen.halves_repeat,
        between=(low / _BEYOND, high * _BEYOND) if is_apart and is_free else None,
        sign=1.0 if seen.most > 0 else -1.0,
    )


def _both(look: Look, other: Look) -> Look:
    ends = (look.least, look.most) == (other.least, other.most)
    return Look(
        look.numel + other.numel,
        min(look.least, other.least),
        max(look.most, other.most),
        zeros=_shared(look.zeros, other.zeros),
        share_of_zeros=min(look.share_of_zeros, other.share_of_zeros),
        is_mask=look.is_mask and other.is_mask and ends,
        is_rising=look.is_rising and other.is_rising,
        sums_to_one=look.sums_to_one and other.sums_to_one,
        logs_sum_to_one=look.logs_sum_to_one and other.logs_sum_to_one,
        halves_repeat=look.halves_repeat and other.halves_repeat,
    )


def _shared(zeros: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    if zeros is None or other is None or zeros.shape != other.shape:
        return None
    shared = zeros & other
    is_most = int(shared.sum()) >= _SAME_ZEROS * max(int(zeros.sum()), int(other.sum()))
    return shared if is_most else None


def _holds(test: Callable[[torch.Tensor], torch.Tensor], values: torch.Tensor) -> bool:
    """Asked of the first row first: large tensors have no room for what tests make."""
    return bool(test(values[:1])) and bool(test(values))


def _is_rising(rows: torch.Tensor) -> torch.Tensor:
    return (rows[..., 1:] >= rows[..., :-1]).all()


def _sums_to_one(rows: torch.Tensor) -> torch.Tensor:
    return ((rows.sum(-1, dtype=torch.float32) - 1).abs() < _SUM_ERROR).all()


def _logs_sum_to_one(rows: torch.Tensor) -> torch.Tensor:
    return (rows.float().logsumexp(-1).abs() < _SUM_ERROR).all()


def _halves_repeat(rows: torch.Tensor) -> torch.Tensor:
    half = rows.shape[-1] // 2
    return (rows[..., :half] == rows[..., half:]).all()
