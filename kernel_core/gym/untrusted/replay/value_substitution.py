"""Tests whether a launch only moves numbers: it is launched again on other numbers, and its writes are looked
for among them.

In several rounds all its floating-point memory is filled anew. Each number that a copy writes is, in every
round, the number that stood in one and the same place, or always the same constant. A constant must not be
what the pass gives: to mask is work. A maximum or a ReLU passes numbers on too, but from another place when
the numbers are others. Arithmetic writes numbers that stood nowhere.

The values are first drawn from the range of the former ones, so that a number which is an address stays a
valid one. Only a launch that looks like a copy then meets larger values of both signs, on which a clamp
shows. Memory is filled and looked at in parts, so that little is needed beside two copies of the arguments.
Afterwards all memory is as the launch left it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

_CHUNK = 1 << 24
"""Elements filled or looked at together."""
_SAMPLE, _GLANCE = 1 << 20, 1 << 12
"""Written elements that are followed; and those looked at before anything is launched again."""
_ROUNDS = {2: 5, 4: 2, 8: 2}
"""Rounds for each kind of values, by bytes of an element: together they tell all places apart."""
_CERTAIN = 40
"""Among this many choices between two places, one changes from round to round."""
_WIDE_EXPONENTS = 8.0
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_MIX = 6364136223846793005
"""An odd factor, so that no bit of an earlier round is lost."""


@dataclass(frozen=True, slots=True)
class _WrittenPlaces:
    """Places of one type that a launch wrote to, and what it wrote there first."""

    places: dict[int, torch.Tensor]
    """Places by storage."""
    first: torch.Tensor


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
        self._changed = changed
        self._launch = launch
        self._given = given
        self._seed = secrets.randbits(40)
        self._ranges: dict[int, tuple[float, float]] = {}
        self._written = {dtype: self._written_of(dtype) for dtype in {floats[number] for number in changed}}

    def find_a_move(self) -> bool:
        """Whether the launch only moves numbers."""
        return self._may_move() and self._is_a_move()

    def _may_move(self) -> bool:
        """Whether anything that was written stood somewhere before."""
        found = False
        for dtype, written in self._written.items():
            if not written.first.numel():
                return False  # the launch wrote to storages of another type
            stride = max(1, written.first.numel() // _GLANCE)
            wanted = written.first[::stride].long().unique()
            occurs = _occur(wanted, (_bits(part).long() for part in self._parts(self._before, dtype)))
            found |= bool(occurs.any())
        return found

    def _is_a_move(self) -> bool:
        """Whether the written numbers come from the same places, whatever the values are."""
        after = {number: raw.clone() for number, raw in self._memory.items()}
        try:
            self._ranges = {
                number: _range(_elements(self._before[number], dtype))
                for number, dtype in self._floats.items()
            }
            return self._is_same_in_all_rounds()
        except Exception:
            # A kernel that fails on other values, because they lead it out of bounds, depends on them; and
            # where memory is short, the launch counts as no copy.
            return False
        finally:
            for number, raw in self._memory.items():
                raw.copy_(after[number])

    def _is_same_in_all_rounds(self) -> bool:
        keys = {dtype: torch.zeros_like(one.first).long() for dtype, one in self._written.items()}
        constant = {dtype: torch.ones_like(one.first).bool() for dtype, one in self._written.items()}
        moves = {dtype: torch.zeros_like(one.first).bool() for dtype, one in self._written.items()}
        last = self._num_rounds()
        looked_at = {1 << bit for bit in range(last.bit_length())} | {last // 2, last}
        for count in range(1, 1 + last):
            self._fill(count - 1)
            self._launch()
            for dtype, written in self._written.items():
                bits = self._bits_at(written.places, dtype)
                keys[dtype] = keys[dtype] * _MIX + bits.long()
                constant[dtype] &= bits == written.first
                if count not in looked_at:
                    continue
                wanted, which = keys[dtype].unique(return_inverse=True)
                moves[dtype] = _occur(wanted, self._source_keys(dtype, count))[which]
                if not bool((moves[dtype] | constant[dtype]).all()):
                    return False
        masks = any(
            bool((~moves[dtype] & self._is_given(written.places, dtype)).any())
            for dtype, written in self._written.items()
        )
        return not masks and any(bool(one.any()) for one in moves.values())

    def _num_rounds(self) -> int:
        """The first half on values of the same range, the second on wider ones."""
        fewest = min(written.first.numel() for written in self._written.values())
        needed = max(_ROUNDS[dtype.itemsize] for dtype in self._written)
        return 2 * max(needed, -(-_CERTAIN // (2 * fewest)))

    def _fill(self, number: int) -> None:
        """Other values for a round; integers as they were."""
        for storage, raw in self._memory.items():
            raw.copy_(self._before[storage])
            if storage in self._floats:
                elements = _elements(raw, self._floats[storage])
                values = self._values(storage, number)
                for start in range(0, elements.numel(), _CHUNK):
                    elements[start : start + _CHUNK] = next(values)

    def _values(self, storage: int, number: int) -> Iterator[torch.Tensor]:
        """The values of one storage in one round, part by part; the same each time they are asked for."""
        dtype, (low, high) = self._floats[storage], self._ranges[storage]
        device, count = self._before[storage].device, _elements(self._before[storage], dtype).numel()
        generator = torch.Generator(device).manual_seed(self._seed + (number << 20) + storage)
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        is_wide, largest = 2 * number >= self._num_rounds(), torch.finfo(dtype).max
        size = max(abs(low), abs(high)) or 1.0
        for start in range(0, count, _CHUNK):
            shape = (min(_CHUNK, count - start),)
            values = torch.rand(shape, generator=generator, device=device, dtype=exact)
            if is_wide:
                sizes = torch.rand(shape, generator=generator, device=device, dtype=exact)
                sizes = torch.exp2((2 * sizes - 1) * _WIDE_EXPONENTS)
                values = ((2 * values - 1) * sizes * size).clamp(-largest, largest)
            else:
                values = (low + (high - low) * values).clamp(low, high)
            yield values.to(dtype)

    def _source_keys(self, dtype: torch.dtype, count: int) -> Iterator[torch.Tensor]:
        """Keys that distinguish each place after so many rounds, part by part."""
        for storage in self._of_type(dtype):
            rounds = [self._values(storage, number) for number in range(count)]
            for parts in zip(*rounds, strict=True):
                keys = torch.zeros(parts[0].shape, dtype=torch.int64, device=parts[0].device)
                for part in parts:
                    keys = keys * _MIX + _bits(part).long()
                yield keys

    def _written_of(self, dtype: torch.dtype) -> _WrittenPlaces:
        storages = [storage for storage in self._of_type(dtype) if storage in self._changed]
        places = {
            storage: _changed_places(
                _bits(_elements(self._memory[storage], dtype)), _bits(_elements(self._before[storage], dtype))
            )
            for storage in storages
        }
        return _WrittenPlaces(places, self._bits_at(places, dtype))

    def _bits_at(self, places: dict[int, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
        return torch.cat(
            [_bits(_elements(self._memory[storage], dtype))[at] for storage, at in places.items()]
        )

    def _is_given(self, places: dict[int, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
        return torch.cat(
            [_bits(_elements(self._given(storage), dtype))[at] != 0 for storage, at in places.items()]
        )

    def _parts(self, memory: dict[int, torch.Tensor], dtype: torch.dtype) -> Iterator[torch.Tensor]:
        for storage in self._of_type(dtype):
            yield from _elements(memory[storage], dtype).split(_CHUNK)

    def _of_type(self, dtype: torch.dtype) -> list[int]:
        return [storage for storage, one in self._floats.items() if one == dtype]


def _elements(raw: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes as numbers; what fills no number at the end is left out."""
    return raw[: raw.numel() // dtype.itemsize * dtype.itemsize].view(dtype)


def _bits(values: torch.Tensor) -> torch.Tensor:
    return values.view(_BITS[values.dtype.itemsize])


def _range(values: torch.Tensor) -> tuple[float, float]:
    """The least and the largest finite value; zeros where there is none."""
    lows, highs = [], []
    for part in values.split(_CHUNK):
        finite = torch.isfinite(part)
        if bool(finite.any()):
            lows.append(float(torch.where(finite, part, torch.inf).amin()))
            highs.append(float(torch.where(finite, part, -torch.inf).amax()))
    return (min(lows), max(highs)) if lows else (0.0, 0.0)


def _changed_places(now: torch.Tensor, was: torch.Tensor) -> torch.Tensor:
    """Positions of elements that differ; of many, as many as are followed, evenly."""
    pairs = list(zip(now.split(_CHUNK), was.split(_CHUNK), strict=True))
    stride = -(-sum(int((one != other).sum()) for one, other in pairs) // _SAMPLE) or 1
    return torch.cat(
        [
            (one != other).nonzero().flatten()[::stride] + index * _CHUNK
            for index, (one, other) in enumerate(pairs)
        ]
    )


def _occur(wanted: torch.Tensor, parts: Iterator[torch.Tensor]) -> torch.Tensor:
    """Whether each of the `wanted` numbers, sorted and unique, occurs in one of the parts."""
    found = torch.zeros_like(wanted).bool()
    for part in parts:
        at = torch.searchsorted(wanted, part).clamp_(max=wanted.numel() - 1)
        found[at[wanted[at] == part]] = True
    return found
