"""Mixed inputs: normal numbers in slices of different kinds, so that a reduction gets whole slices of each
kind."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

_SCALES = (1.0, 2.0**-6, 8.0, 0.25)
KINDS = len(_SCALES)
"""A dimension that is shorter has no slices that differ."""
_OF_ZEROS, _OF_EQUALS = 4, 5
_LARGE, _LARGE_SHARE = 100.0, 1 / 128
_MOST_MODERATE = 20.0
"""Four times what a million normal numbers come to."""
_PART = 1 << 24
"""Elements that are looked at together."""
_LARGEST_TIE = 1.5
_OFTEN = 3


@dataclass(frozen=True, slots=True)
class _Slices:
    """Along which dimension of what shape slices differ, and the rank of each, which says what it is."""

    shape: torch.Size
    dim: int
    rank: torch.Tensor


class Mixed:
    """The mixed tensors of one draw.

    Slices of tensors of one shape are of zeros at the same places, because a sum of two is zero only where
    both are; and each first tensor has a slice that later ones are equal to, if it has their form.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[torch.Size, bool], _Slices] = {}
        self._equals: dict[tuple[int, torch.Size], torch.Tensor] = {}

    def draw(
        self,
        shape: torch.Size,
        *,
        turned: bool = False,
        zeros: bool = True,
        large: bool = True,
        ties: bool = True,
    ) -> torch.Tensor:
        """Slices of several sizes, of one sign, with ties, of zeros, and single values beyond exp's range.

        The latter differ, or each part of a row would have its largest. Without them no value is larger than
        four times what normal numbers come to. A quarter of the slices each is of
        one size, and half of those of plain size are halves, with ties at both ends. A quarter is negative
        throughout and a quarter positive, so that a maximum or a minimum is; those of halves keep both signs,
        because in a small tensor they are one. One slice is of zeros, if there are more than four, and one is
        equal to another tensor's, if there are more than five. Sums stay as well conditioned as those of
        normal numbers: no slice lies much farther from zero than its own spread.
        """
        values = torch.randn(shape)
        slices = self._slices(shape, turned=turned) if any(size >= KINDS for size in shape) else None
        view = values if slices is None else values.view(slices.shape)
        if slices is not None:
            _scale(view, slices, ties=ties)
        if large:
            _put_large(values)
        else:
            _bring_back(values)
        if slices is not None:
            _give_signs(view, slices)
            if zeros:
                self._put_zeros_and_equals(view, slices)
        return values

    def _slices(self, shape: torch.Size, *, turned: bool) -> _Slices:
        known = self._known.get((shape, turned))
        if known is not None:
            return replace(known, rank=_shuffled_but(known.rank))
        view, dim = _turned_slices(shape) if turned else (shape, _long_dims(shape)[0])
        slices = self._known[shape, turned] = _Slices(view, dim, torch.randperm(view[dim]))
        return slices

    def _put_zeros_and_equals(self, view: torch.Tensor, slices: _Slices) -> None:
        view.index_fill_(slices.dim, _of_rank(slices, _OF_ZEROS), 0.0)
        places = _of_rank(slices, _OF_EQUALS)
        if len(places):
            own = view.index_select(slices.dim, places)
            view.index_copy_(slices.dim, places, self._equals.setdefault((slices.dim, own.shape), own))


def _long_dims(shape: torch.Size) -> list[int]:
    return [dim for dim, size in enumerate(shape) if size >= KINDS]


def _turned_slices(shape: torch.Size) -> tuple[torch.Size, int]:
    """Slices along a random long dimension other than the first, mostly along the second, the channels. Along
    the second, a reduction over the batch gets whole slices. Along later ones, only a reduction over both
    does. In a small batch, where only a short dimension precedes the first long one, slices mostly span both
    and several neighbouring channels. So groups of channels have whole slices, too."""
    first, *others = _long_dims(shape)
    ways = [(shape, dim) for dim in others] or [(shape, first)]
    if others and first > 0:
        ways.insert(0, (_with_groups(shape, first), 0))
    often = ways[:1] * (_OFTEN * len(ways)) + ways[1:]
    return often[int(torch.randint(len(often), ()))]


def _with_groups(shape: torch.Size, dim: int) -> torch.Size:
    """All dimensions down to this one merged into one, of slices of the same size, then the dimensions
    within."""
    count = math.prod(shape[: dim + 1])
    slices = next((size for size in range(KINDS + 1, count) if count % size == 0), count)
    return torch.Size((slices, count // slices, *shape[dim + 1 :]))


def _shuffled_but(rank: torch.Tensor) -> torch.Tensor:
    """Other ranks, but for the slices that tensors share."""
    others = ((rank != _OF_ZEROS) & (rank != _OF_EQUALS)).nonzero().flatten()
    return rank.index_copy(0, others, rank[others[torch.randperm(len(others))]])


def _of_rank(slices: _Slices, rank: int) -> torch.Tensor:
    return (slices.rank == rank).nonzero().flatten()


def _scale(values: torch.Tensor, slices: _Slices, *, ties: bool) -> None:
    along = [-1 if dim == slices.dim else 1 for dim in range(values.dim())]
    values.mul_(torch.tensor(_SCALES)[slices.rank % KINDS].reshape(along))
    if not ties:
        return
    plain = (slices.rank % (2 * KINDS) == 0).nonzero().flatten()
    values.index_copy_(slices.dim, plain, _halves(values.index_select(slices.dim, plain)))


def _halves(values: torch.Tensor) -> torch.Tensor:
    return values.mul_(2).round_().div_(2).clamp_(-_LARGEST_TIE, _LARGEST_TIE)


def _put_large(values: torch.Tensor) -> None:
    flat = values.view(-1)
    places = torch.randint(0, max(1, flat.numel()), (int(_LARGE_SHARE * flat.numel()),))
    small = flat[places]  # each large value is made of one of these; some places appear twice, in no order
    flat[places] = torch.copysign(_LARGE * (0.75 + 0.5 * (small.abs() % 1.0)), small)


def _bring_back(values: torch.Tensor) -> None:
    """Sizes beyond the most that is moderate become sizes below it, all different. A part at a time, because
    large tensors leave little memory."""
    for part in values.view(-1).split(_PART):
        beyond = (part.abs() > _MOST_MODERATE).nonzero().flatten()
        large = part[beyond]
        part[beyond] = _MOST_MODERATE * (1.0 - large.abs().remainder(1.0) / 2).copysign(large)


def _give_signs(values: torch.Tensor, slices: _Slices) -> None:
    """Make one slice of each row of slices negative and one positive. Every size gets each sign in turn, and
    slices of halves keep theirs."""
    kind = (slices.rank + slices.rank // KINDS) % KINDS
    for sign, of_sign in ((-1.0, kind == 1), (1.0, kind == 3)):
        chosen = of_sign.nonzero().flatten()
        signed = values.index_select(slices.dim, chosen).copysign_(sign)
        values.index_copy_(slices.dim, chosen, signed)
