"""Tensors in shared memory: laid out by the judge, mapped by a runner, read back by the judge.

Each arena is a sealed memory file that its receiver can write but neither shrink nor grow, so that a
reader never meets a hole. Outputs are poisoned before a candidate sees them.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

_ALIGNMENT = 256
_DTYPES = """
    float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e8m0fnu complex64 complex128 bool
    int64 int32 int16 int8 uint64 uint32 uint16 uint8
"""
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _DTYPES.split()}
"""The element types that may cross between the processes, by name."""


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` as `float32`."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a contiguous tensor in an arena."""

    offset: int
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    """Strides in elements, if the order is not row by row: see `order_in_memory`."""

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor's elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count * DTYPES[self.dtype].itemsize

    def to_json(self) -> list[Any]:
        """The slot as part of a header."""
        return [self.offset, list(self.shape), self.dtype, self.strides and list(self.strides)]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Slot:
        """The slot from a header."""
        offset, shape, dtype, strides = value
        return cls(
            offset=int(offset),
            shape=tuple(int(n) for n in shape),
            dtype=str(dtype),
            strides=None if strides is None else tuple(int(n) for n in strides),
        )

    def view_of(self, flat: torch.Tensor) -> torch.Tensor:
        """The tensor that has these elements, in the order in which they lie in memory."""
        return flat.view(self.shape) if self.strides is None else flat.as_strided(self.shape, self.strides)


def order_in_memory(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The strides of a tensor that is transposed or permuted in memory; None of any other: its elements lie
    in the order of its rows, or they have gaps or share memory, and are laid out in that order."""
    if tensor.is_contiguous():
        return None
    dims = sorted(
        (stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1
    )
    expected = 1
    for stride, size in dims:
        if stride != expected:
            return None
        expected *= size
    return tensor.stride()


def lay_out(tensors: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> tuple[list[Slot], int]:
    """Slots for tensors of these shapes and types, and the bytes of the arena that holds them."""
    slots, end = [], 0
    for shape, dtype in tensors:
        slot = Slot(offset=end, shape=tuple(shape), dtype=dtype_name(dtype))
        slots.append(slot)
        end += -(-max(slot.num_bytes, 1) // _ALIGNMENT) * _ALIGNMENT
    return slots, max(end, mmap.PAGESIZE)


def slots_to_json(slots: Iterable[Slot]) -> list[list[Any]]:
    """The slots as part of a header."""
    return [slot.to_json() for slot in slots]


def like_these(slots: Sequence[Slot], tensors: Sequence[torch.Tensor]) -> list[Slot]:
    """The slots, so that each tensor lies in its slot as it does in its own memory: a kernel that does not
    look at its strides is wrong there too."""
    return [
        replace(slot, strides=order_in_memory(tensor)) for slot, tensor in zip(slots, tensors, strict=True)
    ]


class Arena:
    """A mapped memory file. The maker owns the descriptor; a receiver maps what it was sent."""

    def __init__(self, descriptor: int, num_bytes: int) -> None:
        self.descriptor = descriptor
        self.num_bytes = num_bytes
        self._map = mmap.mmap(descriptor, num_bytes)

    @classmethod
    def create(cls, num_bytes: int) -> Arena:
        """A new arena of zeros with a sealed size."""
        descriptor = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, num_bytes)
        fcntl.fcntl(
            descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
        return cls(descriptor, num_bytes)

    @classmethod
    def open(cls, descriptor: int, num_bytes: int) -> Arena:
        """An arena that another process made."""
        return cls(descriptor, num_bytes)

    def tensor(self, slot: Slot) -> torch.Tensor:
        """The tensor at a slot: a view of the arena's memory."""
        count = 1
        for size in slot.shape:
            count *= size
        dtype = DTYPES[slot.dtype]
        if count == 0:
            return torch.empty(slot.shape, dtype=dtype)
        flat = torch.frombuffer(self._map, dtype=dtype, count=count, offset=slot.offset)
        return slot.view_of(flat)

    def poison(self, slots: Sequence[Slot]) -> None:
        """Fill slots with bytes that are NaN as a float and -1 as an integer."""
        for slot in slots:
            if slot.num_bytes:
                raw = torch.frombuffer(self._map, dtype=torch.uint8, count=slot.num_bytes, offset=slot.offset)
                raw.fill_(0xFF)

    def close(self) -> None:
        """Give the descriptor back; the mapping goes when its last tensor does."""
        os.close(self.descriptor)


def arena_kind(device: str) -> Any:
    """The class of arenas in the memory of a kind of device."""
    if device == "cpu":
        return Arena
    from kernel_core.gym.channel.cuda_arena import DeviceArena

    return DeviceArena
