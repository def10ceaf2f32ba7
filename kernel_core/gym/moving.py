"""Which launches of a trace only move data: copies, slices, transposes, paddings, in chains too.

Such a launch does nothing with a value but put it elsewhere, and where to does not depend on the values. So
it is launched again on other values: in several rounds all floating-point memory that it is given is filled
anew, and each number it writes must be, in every round, the number that stood in one and the same place, or
always the same constant. A maximum or a ReLU passes numbers on too, but from another place when the numbers
are others; arithmetic writes numbers that stood nowhere.

The values are first drawn from the range of those that were there, so that a number which is an address
stays a valid one; only what looks like a copy then meets larger ones of both signs, on which a clamp shows.
Integers stay as they are: a launch that is told by the inputs' integers what goes where does not count as a
copy, one that has them from elsewhere may. Launches of CUDA C++ do not say what types they have; they count
as a copy only when they copy another argument whole. Memory is filled and looked at in parts, so that beside
two copies of the arguments little is needed; afterwards all is as the launch left it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernel_core.gym.arena import DTYPES
from kernel_core.gym.structure import same_bytes

_CHUNK = 1 << 24
"""Elements filled or looked at together."""
_SAMPLE, _GLANCE = 1 << 20, 1 << 12
"""Written elements that are followed; and those looked at before anything is launched again."""
_MANY_CONSTANTS = 16
"""More different numbers that come from nowhere are computed."""
_ROUNDS = {2: 5, 4: 2, 8: 2}
"""By bytes of an element, of each kind of values: together they tell all places apart."""
_CERTAIN = 40
"""Of so many choices between two places, one changes from round to round."""
_WIDE_EXPONENTS = 8.0
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_MIX = 6364136223846793005
"""Odd, so that no bit of an earlier round is lost."""


class Player(Protocol):
    """One pass over a trace."""

    def launch(self, operation: dict[str, Any]) -> None:
        """Do a launch."""
        ...

    def memory_of(self, operation: dict[str, Any]) -> dict[int, torch.Tensor]:
        """The bytes of each storage among a launch's arguments, by its number."""
        ...

    def view_of(self, view: list[Any], memory: torch.Tensor) -> torch.Tensor:
        """A view of a storage, as its argument, in other bytes of that storage."""
        ...


def views_in(value: Any) -> Iterator[list[Any]]:
    """All views of storages in a value of a trace."""
    if isinstance(value, dict):
        if isinstance(value.get("t"), list):
            yield value["t"]
        else:
            yield from views_in(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from views_in(item)


class Movers:
    """Launches of one pass, each looked at as it is done; `found` are the ids of those that only move."""

    def __init__(self, trace: dict[str, Any]) -> None:
        self.found: set[int] = set()
        self._operations = iter(trace["operations"])
        self._reached: set[int] = set(trace["inputs"])
        """Storages whose contents may depend on the inputs."""

    def launch(self, player: Player, operation: dict[str, Any]) -> None:
        """Do a launch of a pass, and look whether it only moves."""
        self._follow_until(operation)
        memory = player.memory_of(operation)
        before = {number: raw.clone() for number, raw in memory.items()}
        player.launch(operation)
        changed = {number for number, raw in memory.items() if not same_bytes(raw, before[number])}
        if (
            not changed
            or _copies_whole(player, operation, memory, before)
            or self._moves(player, operation, memory, before, changed)
        ):
            self.found.add(id(operation))
        if self._reached & memory.keys():
            self._reached |= changed

    def _follow_until(self, launch: dict[str, Any]) -> None:
        """Where the inputs came to through operators of torch's."""
        for operation in self._operations:
            if operation is launch:
                return
            if "op" in operation:
                given = {view[0] for view in views_in([operation["args"], operation["kwargs"]])}
                if given & self._reached:
                    # Who returns nothing writes to what it is given.
                    self._reached |= {view[0] for view in operation["outputs"]} or given

    def _moves(
        self,
        player: Player,
        operation: dict[str, Any],
        memory: dict[int, torch.Tensor],
        before: dict[int, torch.Tensor],
        changed: set[int],
    ) -> bool:
        types: dict[int, set[torch.dtype]] = {}
        for number, dtype, *_ in views_in(operation["args"]):
            types.setdefault(number, set()).add(DTYPES[dtype])
        if any(len(one) > 1 for one in types.values()):
            return False
        floats = {number: dtype for number, [dtype] in types.items() if dtype.is_floating_point}
        chosen_by = types.keys() - floats.keys() - changed
        if not changed <= floats.keys() or chosen_by & self._reached:
            return False
        probe = _Probe(memory, before, floats, changed, lambda: player.launch(operation))
        return probe.looks_like_a_move() and probe.is_a_move()


def _copies_whole(
    player: Player,
    operation: dict[str, Any],
    memory: dict[int, torch.Tensor],
    before: dict[int, torch.Tensor],
) -> bool:
    """Whether each argument that changed is now another one as it was."""
    views = list(views_in(operation["args"]))
    was = [player.view_of(view, before[view[0]]) for view in views]
    now = [player.view_of(view, memory[view[0]]) for view in views]
    changed = [index for index, tensor in enumerate(now) if not same_bytes(tensor, was[index])]
    return bool(changed) and all(
        any(
            other != index and _looks_like(one, now[index]) and same_bytes(one, now[index])
            for other, one in enumerate(was)
        )
        for index in changed
    )


def _looks_like(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and left.numel() == right.numel()


@dataclass(frozen=True, slots=True)
class _Written:
    """Places of one type that a launch wrote to, and what it wrote there first."""

    places: dict[int, torch.Tensor]
    """By storage."""
    first: torch.Tensor


class _Probe:
    """One launch, done again on other values."""

    def __init__(
        self,
        memory: dict[int, torch.Tensor],
        before: dict[int, torch.Tensor],
        floats: dict[int, torch.dtype],
        changed: set[int],
        launch: Callable[[], None],
    ) -> None:
        self._memory = memory
        self._before = before
        self._floats = floats
        self._launch = launch
        self._seed = secrets.randbits(40)
        self._ranges = {number: _range(_elements(before[number], dtype)) for number, dtype in floats.items()}
        self._written = {
            dtype: self._written_of(dtype, changed) for dtype in {floats[number] for number in changed}
        }

    def looks_like_a_move(self) -> bool:
        """Whether what was written stood somewhere before, or is one of a few constants."""
        for dtype, written in self._written.items():
            if not written.first.numel():
                return False  # it wrote to what is not of its type
            stride = max(1, written.first.numel() // _GLANCE)
            wanted = written.first[::stride].long().unique()
            found = _occur(wanted, (_bits(part).long() for part in self._parts(self._before, dtype)))
            if int((~found).sum()) > _MANY_CONSTANTS:
                return False
        return True

    def is_a_move(self) -> bool:
        """Whether what is written comes from the same places, whatever the values are."""
        after = {number: raw.clone() for number, raw in self._memory.items()}
        try:
            return self._is_same_in_all_rounds()
        except Exception:
            # A kernel that cannot work on other values, because they lead it out of bounds, minds them; and
            # where there is no memory to look, nothing is held against it.
            return False
        finally:
            for number, raw in self._memory.items():
                raw.copy_(after[number])

    def _is_same_in_all_rounds(self) -> bool:
        keys = {dtype: torch.zeros_like(one.first).long() for dtype, one in self._written.items()}
        constant = {dtype: torch.ones_like(one.first).bool() for dtype, one in self._written.items()}
        moved = False
        for count in range(1, 1 + self._num_rounds()):
            self._fill(count - 1)
            self._launch()
            for dtype, written in self._written.items():
                bits = self._bits_at(written.places, dtype)
                keys[dtype] = keys[dtype] * _MIX + bits.long()
                constant[dtype] &= bits == written.first
                wanted, which = keys[dtype].unique(return_inverse=True)
                found = _occur(wanted, self._source_keys(dtype, count))[which]
                if not bool((found | constant[dtype]).all()):
                    return False
                moved |= count == self._num_rounds() and not bool(constant[dtype].all())
        return moved

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
        """What tells each place apart after so many rounds, part by part."""
        for storage in self._of_type(dtype):
            rounds = [self._values(storage, number) for number in range(count)]
            for parts in zip(*rounds, strict=True):
                keys = torch.zeros(parts[0].shape, dtype=torch.int64, device=parts[0].device)
                for part in parts:
                    keys = keys * _MIX + _bits(part).long()
                yield keys

    def _written_of(self, dtype: torch.dtype, changed: set[int]) -> _Written:
        storages = [storage for storage in self._of_type(dtype) if storage in changed]
        places = {
            storage: _changed_places(
                _bits(_elements(self._memory[storage], dtype)), _bits(_elements(self._before[storage], dtype))
            )
            for storage in storages
        }
        return _Written(places, self._bits_at(places, dtype))

    def _bits_at(self, places: dict[int, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
        return torch.cat(
            [_bits(_elements(self._memory[storage], dtype))[at] for storage, at in places.items()]
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
    """Which of the `wanted` numbers, in order and each once, occur in one of the parts."""
    found = torch.zeros_like(wanted).bool()
    for part in parts:
        at = torch.searchsorted(wanted, part).clamp_(max=wanted.numel() - 1)
        found[at[wanted[at] == part]] = True
    return found
