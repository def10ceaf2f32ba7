"""Arenas in a GPU's memory, shared by file descriptor.

The driver's virtual memory calls serve here rather than CUDA IPC handles. A descriptor travels as that of an
arena in host memory does. No process id is involved, so candidates may live in other namespaces. The same
memory can be mapped at a fresh address for every call. Mapping 13 GB takes under a millisecond. Structures
and constants: `cuda.h`, "Virtual Memory Management".
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Iterator, Sequence

import torch

from kernel_core.gym.channel.cuda_driver import call_driver
from kernel_core.gym.channel.shared_arena import DTYPES, Slot

_PINNED, _POSIX_DESCRIPTOR, _ON_DEVICE, _READ_WRITE = 1, 1, 1, 3


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows_data", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class TooLittleMemory(Exception):
    """A process found the GPU's memory full, maybe of others' work."""


class DeviceArena:
    """Memory of the current GPU. Made by the judge, or opened by a runner from a descriptor."""

    def __init__(self, handle: int, descriptor: int, num_bytes: int) -> None:
        self.descriptor = descriptor
        self.num_bytes = num_bytes
        self._size = _rounded(num_bytes)
        self._handle = handle
        self._address = _map(handle, self._size)
        self._is_mapped = True

    @classmethod
    def create(cls, num_bytes: int) -> DeviceArena:
        """New memory. Raises torch's `OutOfMemoryError` when the GPU has not that much left."""
        torch.cuda.set_device(torch.cuda.current_device())  # makes the context this thread's own
        handle, properties = ctypes.c_uint64(), _properties()
        size = ctypes.c_size_t(_rounded(num_bytes))
        call_driver("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(properties), ctypes.c_uint64(0))
        descriptor = ctypes.c_int()
        call_driver(
            "cuMemExportToShareableHandle",
            ctypes.byref(descriptor),
            handle,
            _POSIX_DESCRIPTOR,
            ctypes.c_uint64(0),
        )
        return cls(handle.value, descriptor.value, num_bytes)

    @classmethod
    def open(cls, descriptor: int, num_bytes: int) -> DeviceArena:
        """Memory that another process made, at an address of this process's own."""
        handle = ctypes.c_uint64()
        call_driver(
            "cuMemImportFromShareableHandle",
            ctypes.byref(handle),
            ctypes.c_void_p(descriptor),
            _POSIX_DESCRIPTOR,
        )
        return cls(handle.value, descriptor, num_bytes)

    def tensor(self, slot: Slot) -> torch.Tensor:
        """The tensor at a slot: the arena's memory, with a storage of its own."""
        dtype = DTYPES[slot.dtype]
        if slot.num_bytes == 0:
            return torch.empty(slot.shape, dtype=dtype, device="cuda")
        return slot.view_of(self._raw(slot).view(dtype))

    def poison(self, slots: Sequence[Slot]) -> None:
        """Fill slots with bytes that are NaN as a float and -1 as an integer."""
        for slot in slots:
            if slot.num_bytes:
                self._raw(slot).fill_(0xFF)

    def close(self, reuse_address: bool = True) -> None:
        """Unmap the memory, which must be in no use, and give the descriptor back; without `reuse_address`
        nothing else will ever lie there in this process."""
        if not self._is_mapped:
            return
        self._is_mapped = False
        torch.cuda.synchronize()
        size = ctypes.c_size_t(self._size)
        call_driver("cuMemUnmap", ctypes.c_uint64(self._address), size)
        if reuse_address:
            call_driver("cuMemAddressFree", ctypes.c_uint64(self._address), size)
        call_driver("cuMemRelease", ctypes.c_uint64(self._handle))
        os.close(self.descriptor)

    def move(self) -> None:
        """Map the memory, which nothing uses, somewhere else; nothing else will ever lie where it was."""
        torch.cuda.synchronize()
        call_driver("cuMemUnmap", ctypes.c_uint64(self._address), ctypes.c_size_t(self._size))
        self._address = _map(self._handle, self._size)

    def _raw(self, slot: Slot) -> torch.Tensor:
        return torch.as_tensor(_Bytes(self._address + slot.offset, slot.num_bytes), device="cuda")


class ArenaPool:
    """Arenas that are lent to one borrower at a time and kept for the next one, because the driver clears new
    memory at about 3 ms a gigabyte. Return an arena only after all processes of the borrower have ended."""

    def __init__(self) -> None:
        self._free: list[DeviceArena] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def lend(self, num_bytes: int) -> Iterator[DeviceArena]:
        """An arena of at least this size, and at most half as large again."""
        arena = self._take(num_bytes)
        try:
            yield arena
        finally:
            with self._lock:
                self._free.append(arena)

    def shrink(self, num_bytes: int) -> None:
        """Close the oldest unused arenas until the unused ones hold at most this many bytes."""
        with self._lock:
            self._shrink(num_bytes)

    def _take(self, num_bytes: int) -> DeviceArena:
        with self._lock:
            fitting = [arena for arena in self._free if num_bytes <= arena.num_bytes <= 1.5 * num_bytes]
            if fitting:
                arena = min(fitting, key=lambda free: free.num_bytes)
                self._free.remove(arena)
            return arena if fitting else self._create(num_bytes)

    def _create(self, num_bytes: int) -> DeviceArena:
        try:
            return DeviceArena.create(num_bytes)
        except torch.cuda.OutOfMemoryError:
            self._shrink(0)
            torch.cuda.empty_cache()
            return DeviceArena.create(num_bytes)

    def _shrink(self, num_bytes: int) -> None:
        while sum(arena.num_bytes for arena in self._free) > num_bytes:
            self._free.pop(0).close()


class _Bytes:
    """Describes memory to torch that torch did not allocate."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _map(handle: int, size: int) -> int:
    address, access = ctypes.c_uint64(), _Access(_location(), _READ_WRITE)
    zero, num_bytes = ctypes.c_uint64(0), ctypes.c_size_t(size)
    call_driver("cuMemAddressReserve", ctypes.byref(address), num_bytes, ctypes.c_size_t(0), zero, zero)
    call_driver("cuMemMap", address, num_bytes, ctypes.c_size_t(0), ctypes.c_uint64(handle), zero)
    call_driver("cuMemSetAccess", address, num_bytes, ctypes.byref(access), ctypes.c_size_t(1))
    return address.value


def _location() -> _Location:
    return _Location(_ON_DEVICE, torch.cuda.current_device())


def _properties() -> _Properties:
    return _Properties(_PINNED, _POSIX_DESCRIPTOR, _location(), None, (ctypes.c_ubyte * 8)())


@functools.cache
def _granularity() -> int:
    size, properties = ctypes.c_size_t(), _properties()
    call_driver("cuMemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(properties), 0)
    return size.value


def _rounded(num_bytes: int) -> int:
    unit = _granularity()
    return -(-num_bytes // unit) * unit
