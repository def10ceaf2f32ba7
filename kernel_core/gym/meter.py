"""Watch what interpreted kernels do: that they stay inside their memory, and how much work it is.

Counted are bytes loaded and stored, the distinct bytes behind them, and operations (`arithmetic.py`). Masked
lanes move nothing. Counts are taken in the replaying process, where no host code of a candidate runs; a
runner only has the bounds checked, so that a stray access is an error with a line number and not whatever
the heap happened to hold.
"""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from triton.runtime.interpreter import InterpreterBuilder

from kernel_core.gym import arithmetic
from kernel_core.gym.work import ELEMENTWISE


class OutOfBounds(Exception):
    """A kernel touched memory that no tensor of this pass owns."""

    def __init__(self, store: bool) -> None:
        kind = "store" if store else "load"
        super().__init__(f"out-of-bounds {kind}: an unmasked address lies outside all tensors")


@dataclass(slots=True)
class Region:
    """One storage: where it lies and which of its bytes this launch has touched."""

    start: int
    num_bytes: int
    touched: npt.NDArray[np.bool_] | None = None


@dataclass(slots=True)
class Meter:
    """The counts of one launch; without `counting`, only the bounds are checked."""

    counting: bool = True
    bytes_accessed: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    """By their kinds (`work.Work`), one for each element of a block, as the hardware executes them."""
    lanes: dict[bool, list[int]] = field(default_factory=lambda: {False: [0, 0], True: [0, 0]})
    """Active and all lanes of loads (False) and of stores (True)."""
    num_programs: int = 0
    _done: int = 0
    _heaviest: int = 0
    """What was counted before this program, and of the one that did most."""
    regions: list[Region] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)

    def begin(self, storages: list[torch.UntypedStorage]) -> None:
        """Forget the last launch; from now on memory is these storages."""
        self.bytes_accessed = self.num_programs = self._done = self._heaviest = 0
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

        Of elements, those on lanes that were loaded. Of an (M, K)·(K, N) product, loads are active in the
        shares m·k and k·n and stores in m·n, so that m·k·n is about the share of loads times the root of that
        of stores."""
        elements = self._active_share(store=False)
        products = elements * self._active_share(store=True) ** 0.5
        return {
            kind: round(count * (elements if kind in ELEMENTWISE else products))
            for kind, count in self.operations.items()
        }

    @property
    def balance(self) -> float:
        """What a program does on average, over what the one does that does most."""
        self._end_program()
        return self._done / self.num_programs / self._heaviest if self._heaviest else 1.0

    def next_program(self) -> None:
        """Another program of the grid begins."""
        self._end_program()
        self.num_programs += 1

    def _end_program(self) -> None:
        total = self.bytes_accessed + self.operations.total()
        self._heaviest = max(self._heaviest, total - self._done)
        self._done = total

    def _active_share(self, store: bool) -> float:
        active, total = self.lanes[store]
        return active / total if active else 1.0

    def access(
        self, addresses: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_], item_bytes: int, store: bool
    ) -> None:
        """Count one load or store of a block of addresses. Raises `OutOfBounds`."""
        addresses, mask = np.broadcast_arrays(addresses, mask)
        flat = addresses[mask]
        self.lanes[store][0] += flat.size
        self.lanes[store][1] += mask.size
        if flat.size == 0:
            return
        self.bytes_accessed += flat.size * item_bytes
        low, high = int(flat.min()), int(flat.max()) + item_bytes
        index = bisect.bisect_right(self._starts, low) - 1
        if index < 0 or high > self.regions[index].start + self.regions[index].num_bytes:
            self._access_scattered(flat, item_bytes, store)
            return
        self._touch(self.regions[index], flat, item_bytes)

    def _access_scattered(self, flat: npt.NDArray[np.uint64], item_bytes: int, store: bool) -> None:
        owner = np.searchsorted(np.array(self._starts, dtype=np.uint64), flat, side="right") - 1
        for index in np.unique(owner):
            part = flat[owner == index]
            region = self.regions[index] if index >= 0 else None
            if region is None or int(part.max()) + item_bytes > region.start + region.num_bytes:
                raise OutOfBounds(store)
            self._touch(region, part, item_bytes)

    def _touch(self, region: Region, flat: npt.NDArray[np.uint64], item_bytes: int) -> None:
        if not self.counting:
            return
        if region.touched is None:
            region.touched = np.zeros(region.num_bytes, dtype=np.bool_)
        offsets = (flat - np.uint64(region.start)).astype(np.int64)
        for byte in range(item_bytes):
            region.touched[offsets + byte] = True


def install(meter: Meter) -> None:
    """Make the interpreter of this process report to the meter, for good."""
    builder: Any = InterpreterBuilder
    _wrap_memory(builder, meter)
    if not meter.counting:
        return
    arithmetic.install(meter.operations)
    place = builder.set_grid_idx

    def set_grid_idx(self: Any, *index: int) -> None:
        meter.next_program()
        place(self, *index)

    builder.set_grid_idx = set_grid_idx


def _wrap_memory(builder: Any, meter: Meter) -> None:
    load, store = builder.create_masked_load, builder.create_masked_store
    atomic, exchange = builder.create_atomic_rmw, builder.create_atomic_cas

    def masked_load(self: Any, pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        meter.access(pointers.data, mask.data, _item_bytes(pointers), store=False)
        return load(self, pointers, mask, *rest, **named)

    def masked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        meter.access(pointers.data, mask.data, _item_bytes(pointers), store=True)
        return store(self, pointers, value, mask, *rest, **named)

    def atomic_rmw(self: Any, kind: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        for storing in (False, True):
            meter.access(pointers.data, mask.data, _item_bytes(pointers), store=storing)
        return atomic(self, kind, pointers, value, mask, *rest)

    def atomic_cas(self: Any, pointers: Any, *rest: Any) -> Any:
        everywhere = np.ones_like(pointers.data, dtype=np.bool_)
        for storing in (False, True):
            meter.access(pointers.data, everywhere, _item_bytes(pointers), store=storing)
        return exchange(self, pointers, *rest)

    builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
    builder.create_atomic_rmw, builder.create_atomic_cas = atomic_rmw, atomic_cas


def _item_bytes(pointers: Any) -> int:
    return max(1, pointers.get_element_ty().primitive_bitwidth // 8)
