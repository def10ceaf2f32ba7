"""Meters interpreted kernels: bounds, races and the amount of work.

Counts are bytes loaded and stored, the distinct bytes among them, and operations (`op_counter.py`). Masked
lanes move nothing. Counts are taken in the replaying process, where no host code of a candidate runs. A
runner only checks bounds and races (`race_detector.py`), so that a stray access is an error with a line
number instead of a read of the heap.
"""

from __future__ import annotations

import bisect
import ctypes
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.ctypeslib  # NumPy would load it at the first use, in each candidate's process
import numpy.typing as npt
import torch

from kernel_core.gym.channel.work import ELEMENTWISE
from kernel_core.gym.untrusted.interpreter import race_detector


class OutOfBounds(Exception):
    """A kernel touched memory that no tensor of this pass owns."""

    def __init__(self, store: bool) -> None:
        kind = "store" if store else "load"
        super().__init__(f"out-of-bounds {kind}: an unmasked address lies outside all tensors")


@dataclass(slots=True)
class Region:
    """One storage: its address, and its bytes that this launch has touched."""

    start: int
    num_bytes: int
    touched: npt.NDArray[np.bool_] | None = None
    past: race_detector.Past | None = None

    def cells(
        self, flat: npt.NDArray[np.uint64], item_bytes: int
    ) -> tuple[race_detector.Past, race_detector.Cells]:
        """The history of these addresses and their positions in it; a slice where they are contiguous."""
        first, last = int(flat[0]) - self.start, int(flat[-1]) - self.start
        if self.past is None:
            self.past = race_detector.Past.of(self.num_bytes, math.gcd(first, item_bytes))
        past = self.past
        if last - first == (flat.size - 1) * item_bytes and (flat[1:] - flat[:-1] == item_bytes).all():
            unit = math.gcd(past.unit, item_bytes, first)
            if unit < past.unit:
                past.refine(unit)
            return past, slice(first // unit, (last + item_bytes) // unit)
        offsets = (flat - np.uint64(self.start)).astype(np.int64)
        unit = math.gcd(past.unit, item_bytes, int(np.bitwise_or.reduce(offsets)))
        if unit < past.unit:
            past.refine(unit)
        cells = offsets // unit
        if unit < item_bytes:
            cells = (cells[:, None] + np.arange(item_bytes // unit)).ravel()
        return past, cells

    def memory(self, cells: race_detector.Cells, unit: int) -> npt.NDArray[np.uint8]:
        """The contents of the elements now, each a row of bytes."""
        raw = (ctypes.c_uint8 * (self.num_bytes // unit * unit)).from_address(self.start)
        return np.array(np.ctypeslib.as_array(raw).reshape(-1, unit)[cells])


Parts = list[tuple[Region, npt.NDArray[np.uint64]]]
"""Addresses, by the storages that they lie in."""
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Meter:
    """The counts of one launch; without `counting`, only the bounds are checked."""

    counting: bool = True
    bytes_accessed: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    """Operations by kind (`work.Work`), one for each element of a block, as the hardware executes them."""
    lanes: dict[bool, list[int]] = field(default_factory=lambda: {False: [0, 0], True: [0, 0]})
    """Active and all lanes of loads (False) and of stores (True)."""
    num_programs: int = 0
    _done: int = 0
    _heaviest: int = 0
    """The count before this program, and the count of the largest program."""
    regions: list[Region] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _order: race_detector.HappensBefore = field(default_factory=race_detector.HappensBefore)
    is_atomic: bool = False
    """True if loads and stores are parts of an atomic one."""
    one_warp: bool = False
    """True if the lanes of a program are one warp, which needs no barrier."""

    def begin(self, storages: list[torch.UntypedStorage]) -> None:
        """Forget the last launch; from now on memory is these storages."""
        self.bytes_accessed = self.num_programs = self._done = self._heaviest = 0
        self._order = race_detector.HappensBefore()
        self.operations.clear()
        self.lanes = {False: [0, 0], True: [0, 0]}
        spans = sorted({(storage.data_ptr(), storage.nbytes()) for storage in storages if storage.nbytes()})
        self.regions = [Region(start, size) for start, size in spans]
        self._starts = [start for start, _ in spans]

    @property
    def bytes_distinct(self) -> int:
        """Bytes that were loaded or stored at least once."""
        touched = (region.touched for region in self.regions if region.touched is not None)
        return sum(int(np.count_nonzero(flags)) for flags in touched)

    @property
    def useful_operations(self) -> dict[str, int]:
        """Operations without padding: blocks are padded at small sizes, hardly at full ones.

        For elementwise operations only active loaded lanes count. In an (M, K)·(K, N) product, loads are
        active in the shares m·k and k·n and stores in m·n. So m·k·n is about the share of loads times the
        root of the share of stores.
        """
        elements = self._active_share(store=False)
        products = elements * self._active_share(store=True) ** 0.5
        return {
            kind: round(count * (elements if kind in ELEMENTWISE else products))
            for kind, count in self.operations.items()
        }

    @property
    def balance(self) -> float:
        """The work of an average program over that of the largest one."""
        self._end_program()
        return self._done / self.num_programs / self._heaviest if self._heaviest else 1.0

    def next_program(self) -> None:
        """Begin another program of the grid."""
        self._order.begin_program()
        if self.counting:
            self._end_program()
            self.num_programs += 1

    def wait(self) -> None:
        """The lanes of the program wait for each other."""
        self._order.wait()

    def steps(self, values: Iterable[int], stages: int) -> Iterable[int]:
        """The values of a loop. Its loads are moved ahead if it has stages. A loop around it has none."""
        if stages > 1:
            return self._order.steps(values, stages)
        self._order.ahead_of = 0
        return values

    def barrier(self) -> None:
        """A loop in which there is one has no stages."""
        self._order.ahead_of = 0

    def _end_program(self) -> None:
        total = self.bytes_accessed + self.operations.total()
        self._heaviest = max(self._heaviest, total - self._done)
        self._done = total

    def _active_share(self, store: bool) -> float:
        active, total = self.lanes[store]
        return active / total if active else 1.0

    def access(
        self, addresses: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_], item_bytes: int, store: bool
    ) -> Parts:
        """Count one load or store of a block of addresses; these, by their storages. Raises `OutOfBounds`."""
        addresses, mask = np.broadcast_arrays(addresses, mask)
        flat = addresses[mask]
        self.lanes[store][0] += flat.size
        self.lanes[store][1] += mask.size
        if flat.size == 0:
            return []
        self.bytes_accessed += flat.size * item_bytes
        parts = list(self._parts(flat, item_bytes, store))
        for region, part in parts:
            self._touch(region, part, item_bytes)
        return parts

    def _parts(
        self, flat: npt.NDArray[np.uint64], item_bytes: int, store: bool
    ) -> Iterator[tuple[Region, npt.NDArray[np.uint64]]]:
        low, high = int(flat.min()), int(flat.max()) + item_bytes
        index = bisect.bisect_right(self._starts, low) - 1
        if index >= 0 and high <= self.regions[index].start + self.regions[index].num_bytes:
            yield self.regions[index], flat
            return
        owner = np.searchsorted(np.array(self._starts, dtype=np.uint64), flat, side="right") - 1
        for index in np.unique(owner):
            part = flat[owner == index]
            region = self.regions[index] if index >= 0 else None
            if region is None or int(part.max()) + item_bytes > region.start + region.num_bytes:
                raise OutOfBounds(store)
            yield region, part

    def loads(self, parts: Parts, item_bytes: int, mask: Mask) -> bool:
        """Raises `race_detector.Race` where what is loaded depends on the order of programs or lanes; gives
        whether it is a number that only the first lane has."""
        of_first = False
        for region, part in parts:
            past, cells = region.cells(part, item_bytes)
            lanes = _lanes(past, item_bytes, part, mask)
            race_detector.load(past, cells, self._order, lanes)
            if not self.one_warp:
                race_detector.note_load(past, cells, self._order, lanes, mask.size)
            if mask.size > 1:
                race_detector.check_ahead(past, cells, self._order)
            else:
                of_first |= race_detector.is_of_first_lane(past, cells, self._order)
        return of_first

    def stores(self, parts: Parts, item_bytes: int, mask: Mask) -> Callable[[], None]:
        """Before a store; to be called after it. Raises `race_detector.Race` like `loads`."""
        places = [(region, *region.cells(part, item_bytes)) for region, part in parts]
        for (_, past, cells), (_, part) in zip(places, parts, strict=True):
            if not self.one_warp:
                lanes = _lanes(past, item_bytes, part, mask)
                race_detector.check_loaded(past, cells, self._order, lanes)
        contested = [race_detector.contested(past, cells, self._order) for _, past, cells in places]
        before = [
            None if doubt is None else region.memory(cells, past.unit)
            for (region, past, cells), doubt in zip(places, contested, strict=True)
        ]

        def finish() -> None:
            for (region, past, cells), doubt, old, (_, part) in zip(
                places, contested, before, parts, strict=True
            ):
                lanes = None if self.one_warp else _lanes(past, item_bytes, part, mask)
                if doubt is None or old is None:
                    race_detector.stored(past, cells, self._order, lanes)
                    continue
                changed = (region.memory(cells, past.unit) != old).any(axis=1)
                if (changed & doubt).any():
                    raise race_detector.Race(
                        "it stores over what another program of the same launch loads or stores, in no order"
                    )
                race_detector.stored(past, cells, self._order, lanes, doubt)

        return finish

    def exchanges(self, parts: Parts, item_bytes: int, *, ordering: bool) -> None:
        """An atomic. One at a single address brings order: locks and counters are such."""
        stretch = self._order.stretch
        self.wait()
        if ordering and len(parts) == 1 and parts[0][1].size == 1:
            self._order.meet(int(parts[0][1][0]))
        for region, part in parts:
            race_detector.exchange(*region.cells(part, item_bytes), self._order, stretch)

    def _touch(self, region: Region, flat: npt.NDArray[np.uint64], item_bytes: int) -> None:
        if not self.counting:
            return
        if region.touched is None:
            region.touched = np.zeros(region.num_bytes, dtype=np.bool_)
        offsets = (flat - np.uint64(region.start)).astype(np.int64)
        for byte in range(item_bytes):
            region.touched[offsets + byte] = True


def _lanes(
    past: race_detector.Past, item_bytes: int, part: npt.NDArray[np.uint64], mask: Mask
) -> race_detector.Lanes | None:
    """The lanes; None where a block lies in several storages, which is rare, or its mask has another
    shape."""
    if np.count_nonzero(mask) != part.size:
        return None
    return lambda: np.repeat(np.flatnonzero(mask) + 1, item_bytes // past.unit)
