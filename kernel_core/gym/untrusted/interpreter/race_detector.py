"""Programs of one launch that touch the same memory in no order, and lanes that store over each other.

The interpreter runs programs one after the other, so that what depends on their order would be right here
and wrong on a GPU. Of every element this knows who wrote it last and who read it since: not a program but a
stretch of one, which ends at each of its atomics. A stretch comes before another program's if that program
did an atomic at an address after the first one did, having ended the stretch: so do locks and counters.
A store of what is there already is none, for nobody can tell.

The lanes of one program wait for each other only at barriers, and where they work together: in a reduction, a
scan, a product, an atomic. From one to the next is an epoch, in which a lane, told by its place in its block,
may load only what it stored itself, and store only over what no other lane has loaded. A number that is no
block is stored by the first lane and loaded by all, of whom only the first has what was stored: nothing but
numbers may be made of it. A program of one warp has no such lanes: a warp loads and stores in the order of
the program.

In a loop that asks for stages (`tl.range(..., num_stages=4)`) Triton moves loads ahead (there, three steps)
and does not ask whether a store comes between. Loops around others, and such with a barrier, it leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.int64] | slice
Lanes = Callable[[], npt.NDArray[np.int64]]
"""The places in a block, from 1 on, that the elements of an access belong to: seldom asked for."""
_MANY = -1
"""Several programs have read it."""


class Race(Exception):
    """The kernel's result depends on the order of its programs or lanes, and there is none."""


_ONE_WARP = 32
"""A block of so many elements at most lies in one warp."""
_NOT_YET_LOADED = (
    "a lane stores over what another lane may not have loaded yet: tl.debug_barrier() must be between"
)
_OF_ANOTHER_LANE = "a lane loads what another lane stored: tl.debug_barrier() must be between"


class OfFirstLane(np.ndarray[Any, np.dtype[Any]]):
    """A number that only the first lane knows for sure, and what is computed with it."""


@dataclass(slots=True)
class Past:
    """The stretches that touched the elements of one storage; 0 for none."""

    unit: int
    """Bytes of an element: the largest that all accesses so far are made of."""
    writers: npt.NDArray[np.int32]
    readers: npt.NDArray[np.int32]
    atomic: npt.NDArray[np.bool_]
    """True where the last store was an atomic."""
    lanes: npt.NDArray[np.int32]
    """The lane of the last store; 0 where there were several or none, or all are of one warp."""
    epochs: npt.NDArray[np.int32]
    """The epoch of the last store."""
    steps: npt.NDArray[np.int32]
    """The step of a loop with stages at the last store; 0 outside of such loops."""
    newest: int = 0
    """The epoch of the last store to any element."""
    newest_step: int = 0
    same: dict[int, set[int]] = field(default_factory=dict)
    """Programs, by their first stretches, that stored what another had stored there."""
    loads: list[tuple[Cells, Lanes]] = field(default_factory=list)
    """Loads of the epoch `loads_epoch` that are not in `loaders` yet: most storages are never stored to."""
    loads_epoch: int = 0
    loaders: npt.NDArray[np.int32] | None = None
    """The lane that loaded the element in the epoch `loader_epochs`; `_MANY` for several."""
    loader_epochs: npt.NDArray[np.int32] | None = None

    @classmethod
    def of(cls, num_bytes: int, unit: int) -> Past:
        """Nobody yet."""
        count = -(-num_bytes // unit)
        writers, readers, lanes, epochs, steps = (np.zeros(count, dtype=np.int32) for _ in range(5))
        return cls(unit, writers, readers, np.zeros(count, dtype=np.bool_), lanes, epochs, steps)

    def refine(self, unit: int) -> None:
        """Look at smaller elements from now on."""
        times = self.unit // unit
        self.spread_loads()
        if self.loaders is not None and self.loader_epochs is not None:
            self.loaders, self.loader_epochs = (
                np.repeat(marks, times) for marks in (self.loaders, self.loader_epochs)
            )
        self.writers, self.readers = np.repeat(self.writers, times), np.repeat(self.readers, times)
        self.atomic = np.repeat(self.atomic, times)
        self.lanes, self.epochs = np.repeat(self.lanes, times), np.repeat(self.epochs, times)
        self.steps = np.repeat(self.steps, times)
        self.same = {
            cell * times + part: set(programs)
            for cell, programs in self.same.items()
            for part in range(times)
        }
        self.unit = unit

    def spread_loads(self) -> None:
        """Note which lane loaded each element of the loads so far."""
        if self.loaders is None or self.loader_epochs is None:
            self.loaders, self.loader_epochs = np.zeros_like(self.writers), np.zeros_like(self.writers)
        for cells, lanes in self.loads:
            by = lanes()
            others = (self.loader_epochs[cells] == self.loads_epoch) & (self.loaders[cells] != by)
            self.loaders[cells], self.loader_epochs[cells] = by, self.loads_epoch
            several = others | (self.loaders[cells] != by)
            self.loaders[cells] = np.where(several, _MANY, self.loaders[cells])
        self.loads.clear()


@dataclass(slots=True)
class HappensBefore:
    """The stretches that surely came before the running one. Sets of stretches are bits of an integer."""

    stretch: int = 0
    first: int = 0
    """The first stretch of the running program."""
    epoch: int = 0
    """The epoch of its lanes."""
    step: int = 0
    """The step, counted over all loops with stages so far."""
    ahead_of: int = 0
    """The first step with stores after the current loads; 0 where loads are not moved."""
    _before: int = 0
    _firsts: int = 0
    _released: dict[int, int] = field(default_factory=dict)
    """The stretches before the next user of an atomic, by its address."""

    def begin_program(self) -> None:
        """Begin a program; no stretch of this launch comes before it."""
        self._firsts |= 1 << self.first
        self.stretch += 1
        self.first, self._before = self.stretch, 0
        self.ahead_of = 0
        self.wait()

    def steps(self, values: Iterable[int], stages: int) -> Iterator[int]:
        """The values of a loop with that many stages."""
        self.ahead_of = first = self.step + 1
        for value in values:
            self.step += 1
            if self.ahead_of:  # no barrier so far
                self.ahead_of = max(first, self.step - stages + 2)
            yield value
        self.ahead_of = 0  # a loop around this one has no stages

    def wait(self) -> None:
        """The lanes of the program wait for each other."""
        self.epoch += 1

    def meet(self, address: int) -> None:
        """The program did an atomic here."""
        self._before |= self._released.get(address, 0)
        own = (1 << (self.stretch + 1)) - (1 << self.first)
        self._released[address] = self._before | own
        self.stretch += 1

    def has_before(self, stretch: int) -> bool:
        """Return True if a stretch of another program came first."""
        if stretch == _MANY:
            return self._before & self._firsts | 1 == self._firsts | 1
        return bool(self._before >> stretch & 1)

    def unordered(self, stretches: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Return a mask of the stretches of other programs that are ordered neither before nor after."""
        foreign = (stretches != 0) & (stretches < self.first)
        if foreign.any():
            for stretch in set(stretches[foreign].tolist()):
                if self.has_before(stretch):
                    foreign &= stretches != stretch
        return foreign


def load(past: Past, cells: Cells, order: HappensBefore, lanes: Lanes | None) -> None:
    """Raises `Race` where another program of the launch, or another lane of this one, stored what is read."""
    if lanes is not None and past.newest == order.epoch:
        _check_own(past, cells, order, lanes)
    writers = past.writers[cells]
    if writers.any():
        unordered = order.unordered(writers)
        if unordered.any() and not _stored_too(past, cells, unordered, order):
            raise Race("it loads what another program of the same launch stores, in no order")
    readers = past.readers[cells]
    if readers.any():
        past.readers[cells] = np.where(
            (readers == 0) | (readers >= order.first) | ~order.unordered(readers), order.stretch, _MANY
        )
    else:
        past.readers[cells] = order.stretch


def note_load(past: Past, cells: Cells, order: HappensBefore, lanes: Lanes | None, size: int) -> None:
    """Note that lanes of a block of this size load these elements."""
    if past.loads_epoch != order.epoch:
        past.loads.clear()
        past.loads_epoch = order.epoch
    if lanes is not None and size > _ONE_WARP:
        past.loads.append((cells, lanes))


def check_loaded(past: Past, cells: Cells, order: HappensBefore, lanes: Lanes | None) -> None:
    """Raises `Race` where a lane stores over what another one loaded since lanes waited for each other."""
    if lanes is None or past.loads_epoch != order.epoch:
        return
    past.spread_loads()
    assert past.loaders is not None and past.loader_epochs is not None
    fresh = past.loader_epochs[cells] == order.epoch
    if fresh.any() and (fresh & (past.loaders[cells] != lanes())).any():
        raise Race(_NOT_YET_LOADED)


def check_ahead(past: Past, cells: Cells, order: HappensBefore) -> None:
    """Raises `Race` where a load of blocks is moved ahead of a store that it needs."""
    if 0 < order.ahead_of <= past.newest_step and (past.steps[cells] >= order.ahead_of).any():
        raise Race("it loads what its loop stores, and num_stages moves loads ahead of stores")


def _check_own(past: Past, cells: Cells, order: HappensBefore, lanes: Lanes) -> None:
    fresh = past.epochs[cells] == order.epoch
    if fresh.any():
        stored_by = past.lanes[cells]
        if (fresh & (stored_by != 0) & (stored_by != lanes())).any():
            raise Race(_OF_ANOTHER_LANE)


def is_of_first_lane(past: Past, cells: Cells, order: HappensBefore) -> bool:
    """Return True if what is loaded as a number was stored in this epoch."""
    if past.newest != order.epoch:
        return False
    return bool(((past.epochs[cells] == order.epoch) & (past.lanes[cells] != 0)).any())


def spread(value: npt.NDArray[Any]) -> None:
    """Raises `Race` where a number that only the first lane knows is to be all lanes'."""
    if isinstance(value, OfFirstLane):
        raise Race(_OF_ANOTHER_LANE)


def _stored_too(past: Past, cells: Cells, chosen: npt.NDArray[np.bool_], order: HappensBefore) -> bool:
    return all(order.first in past.same.get(int(cell), ()) for cell in _numbers(cells)[chosen])


def contested(past: Past, cells: Cells, order: HappensBefore) -> npt.NDArray[np.bool_] | None:
    """Before a store: which elements another program has touched in no order, if any."""
    unordered = order.unordered(past.writers[cells]) | order.unordered(past.readers[cells])
    return unordered if unordered.any() else None


def stored(
    past: Past,
    cells: Cells,
    order: HappensBefore,
    lanes: Lanes | None,
    kept: npt.NDArray[np.bool_] | None = None,
) -> None:
    """Note a store: its elements are this program's, except those where the value was `kept`."""
    _remember_lanes(past, cells, order, lanes)
    if kept is None:
        past.writers[cells], past.readers[cells], past.atomic[cells] = order.stretch, 0, False
        return
    numbers = _numbers(cells)
    changed = numbers[~kept]
    past.writers[changed], past.readers[changed], past.atomic[changed] = order.stretch, 0, False
    for cell in numbers[kept]:
        past.same.setdefault(int(cell), set()).add(order.first)


def _remember_lanes(past: Past, cells: Cells, order: HappensBefore, lanes: Lanes | None) -> None:
    past.newest = past.epochs[cells] = order.epoch
    if order.ahead_of or past.newest_step:
        past.newest_step = past.steps[cells] = order.step if order.ahead_of else 0
    by = 0 if lanes is None else lanes()
    past.lanes[cells] = by
    if not isinstance(cells, slice):
        past.lanes[cells[past.lanes[cells] != by]] = 0


def exchange(past: Past, cells: Cells, order: HappensBefore, stretch: int) -> None:
    """An atomic, which counts as done in `stretch`. Atomics need no order among themselves."""
    plain = order.unordered(past.writers[cells]) & ~past.atomic[cells]
    if (plain | order.unordered(past.readers[cells])).any():
        raise Race("its atomics touch what another program of the same launch loads or stores, in no order")
    past.writers[cells], past.readers[cells], past.atomic[cells] = stretch, 0, True


def _numbers(cells: Cells) -> npt.NDArray[np.int64]:
    return np.arange(cells.start, cells.stop) if isinstance(cells, slice) else cells


def check_lanes(addresses: npt.NDArray[np.uint64], values: npt.NDArray[Any]) -> None:
    """Raises `Race` where lanes of one store give one address different values."""
    order = np.argsort(addresses, kind="stable")
    placed, bits = addresses[order], values[order].view(f"u{values.itemsize}")
    if bool(((placed[1:] == placed[:-1]) & (bits[1:] != bits[:-1])).any()):
        raise Race("lanes of one store give one address different values: any of them may stay")
