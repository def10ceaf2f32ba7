"""Tests whether a launch only moves numbers: it is launched again on other numbers, and each number that it
writes must be replaced as the numbers in its memory were.

All its floating-point memory is filled with random numbers, and again with a function of each: a number that
was only moved is replaced by its own image, wherever it came from. The function has no order, so what a
maximum or a ReLU passes on is not replaced so. Arithmetic writes numbers with other images. A number may also
be a constant, always the same; but not one that the pass gives, because to mask is work.

The numbers are first drawn from the range of the former ones, so that a number which is an address stays a
valid one. Only a launch that looks like a copy then meets larger numbers of both signs, on which a clamp
shows. Memory is filled and looked at in parts, so that little is needed beside two copies of the arguments.
Afterwards all memory is as the launch left it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import torch

_CHUNK = 1 << 22
"""Elements filled together."""
_SAMPLE = 1 << 20
"""Written elements that are followed."""
_FEWEST_ROUNDS, _CERTAIN = 2, 40
"""Rounds for each kind of numbers. Among so many choices between two numbers, one differs in a round."""
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ODD = 6364136223846793005
_SHARES, _POWERS = 1 << 24, 16


@dataclass(frozen=True, slots=True)
class _Fill:
    """The numbers of one storage in one round: random ones in the first, images of these in the others."""

    dtype: torch.dtype
    low: float
    high: float
    is_wide: bool
    seed: int
    count: int

    def numbers(self, storage: int, positions: torch.Tensor) -> torch.Tensor:
        """The numbers at some positions of a storage."""
        first = self._number(positions, -1 - storage)
        return self.image(first) if self.count else first

    def image(self, numbers: torch.Tensor) -> torch.Tensor:
        """The number that stands for each in this round."""
        return self._number(_bits(numbers).long(), self.count)

    def _number(self, whole: torch.Tensor, salt: int) -> torch.Tensor:
        mixed = (whole + (self.seed + (salt << 40))) * _ODD
        mixed = (mixed ^ (mixed >> 29)) * _ODD
        share = ((mixed >> 39) & (_SHARES - 1)).double() / _SHARES
        if not self.is_wide:
            return (self.low + (self.high - self.low) * share).clamp(self.low, self.high).to(self.dtype)
        powers = torch.tensor(
            [2.0 ** (power - _POWERS // 2) for power in range(_POWERS)], device=whole.device
        )
        size = max(abs(self.low), abs(self.high)) or 1.0
        largest = torch.finfo(self.dtype).max
        wide = (2 * share - 1) * powers.double()[(mixed >> 8) & (_POWERS - 1)] * size
        return wide.clamp(-largest, largest).to(self.dtype)


class OtherValues:
    """One launch that was done, and its effect when it is done again. `before` holds the former contents of
    all `memory`, `floats` the types of storages of numbers, `changed` the storages that the launch wrote to.
    `given` flags the bytes of a storage that hold outputs."""

    def __init__(
        self,
        memory: dict[int, torch.Tensor],
        before: dict[int, torch.Tensor],
        floats: dict[int, torch.dtype],
        changed: set[int],
        launch: Callable[[], None],
        given: Callable[[int], torch.Tensor],
    ) -> None:
        self._memory = memory
        self._before = before
        self._floats = floats
        self._launch = launch
        self._given = given
        self._seed = secrets.randbits(40)
        self._places = {
            number: _changed_places(
                _bits(_elements(memory[number], floats[number])),
                _bits(_elements(before[number], floats[number])),
            )
            for number in changed
        }

    def find_a_move(self) -> bool:
        """Return True if the launch only moves numbers."""
        if not all(at.numel() for at in self._places.values()):
            return False  # the launch changed no whole number
        after = {number: raw.clone() for number, raw in self._memory.items()}
        try:
            return self._is_a_move()
        except Exception:
            # A kernel that fails on other values, because they lead it out of bounds, depends on them; and
            # where memory is short, the launch counts as no copy.
            return False
        finally:
            for number, raw in self._memory.items():
                raw.copy_(after[number])

    def _is_a_move(self) -> bool:
        ranges = {
            number: _range(_elements(self._before[number], self._floats[number])) for number in self._floats
        }
        own = self._written()
        is_moved = {number: torch.ones_like(contents).bool() for number, contents in own.items()}
        is_constant = {number: torch.ones_like(contents).bool() for number, contents in own.items()}
        fewest = min(at.numel() for at in self._places.values())
        for is_wide in (False, True):
            first: dict[int, torch.Tensor] = {}
            for count in range(1 + max(_FEWEST_ROUNDS, -(-_CERTAIN // (2 * fewest)))):
                fills = {
                    number: _Fill(dtype, *ranges[number], is_wide, self._seed, count)
                    for number, dtype in self._floats.items()
                }
                self._fill(fills)
                self._launch()
                written = self._written()
                first = first or written
                for number, now in written.items():
                    is_constant[number] &= now == own[number]
                    if count:
                        is_moved[number] &= self._is_replaced(number, first[number], now, fills)
                    if not bool((is_moved[number] | is_constant[number]).all()):
                        return False
        masks = any(bool((~is_moved[number] & self._is_given(number)).any()) for number in own)
        return not masks and any(bool(moved.any()) for moved in is_moved.values())

    def _fill(self, fills: dict[int, _Fill]) -> None:
        """Other numbers in all memory; integers as they were."""
        for number, raw in self._memory.items():
            raw.copy_(self._before[number])
            if number in fills:
                elements = _elements(raw, self._floats[number])
                for start in range(0, elements.numel(), _CHUNK):
                    part = elements[start : start + _CHUNK]
                    positions = torch.arange(start, start + part.numel(), device=raw.device)
                    part.copy_(fills[number].numbers(number, positions))

    def _written(self) -> dict[int, torch.Tensor]:
        """The bits of the numbers at the places that the launch wrote to, by storage."""
        return {
            number: _bits(_elements(self._memory[number], self._floats[number])[at])
            for number, at in self._places.items()
        }

    def _is_replaced(
        self, number: int, was: torch.Tensor, now: torch.Tensor, fills: dict[int, _Fill]
    ) -> torch.Tensor:
        """Return a mask of the numbers that were replaced as those of some storage were."""
        dtype = self._floats[number]
        is_image = torch.zeros_like(was).bool()
        for fill in {fill for storage, fill in fills.items() if self._floats[storage] == dtype}:
            is_image |= _bits(fill.image(was.view(dtype))) == now
        return is_image

    def _is_given(self, number: int) -> torch.Tensor:
        return _bits(_elements(self._given(number), self._floats[number]))[self._places[number]] != 0


def _elements(raw: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes as numbers; what fills no number at the end is left out."""
    return raw[: raw.numel() // dtype.itemsize * dtype.itemsize].view(dtype)


def _bits(values: torch.Tensor) -> torch.Tensor:
    return values.view(_BITS[values.dtype.itemsize])


def _range(values: torch.Tensor) -> tuple[float, float]:
    """The least and the largest finite value; zeros where there is none."""
    finite = (part[part.isfinite()] for part in map(torch.Tensor.double, values.split(_CHUNK)))
    ends = [float(end) for part in finite if part.numel() for end in part.aminmax()]
    return (min(ends), max(ends)) if ends else (0.0, 0.0)


def _changed_places(now: torch.Tensor, was: torch.Tensor) -> torch.Tensor:
    """Positions of elements that differ; of many, as many as are followed, evenly."""
    pairs = list(zip(now.split(_CHUNK), was.split(_CHUNK), strict=True))
    stride = -(-sum(int((before != other).sum()) for before, other in pairs) // _SAMPLE) or 1
    return torch.cat(
        [
            (before != other).nonzero().flatten()[::stride] + index * _CHUNK
            for index, (before, other) in enumerate(pairs)
        ]
    )
