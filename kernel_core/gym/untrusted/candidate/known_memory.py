"""The storages that a pass meets, by number, and which of them hold addresses of others.

A grouped product finds its matrices through a tensor of addresses. These are of this process. So the record
says where they stand and to what they point, and each replay puts addresses of its own there. What a kernel
may reach through such a tensor counts as its argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from kernel_core.gym.channel.cuda_params import find_addresses
from kernel_core.gym.channel.shared_arena import DTYPES, dtype_name
from kernel_core.gym.channel.trace_codec import bytes_of, views_in

_MOST_BYTES = 1 << 16
"""The largest tensor in which addresses are looked for."""
_LEAST_ADDRESS = 1 << 32


class KnownMemory:
    """Storages in the order in which they are met."""

    def __init__(self) -> None:
        self.alive: list[torch.UntypedStorage] = []
        self._numbers: dict[int, int] = {}
        self._dtypes: dict[int, str] = {}
        self._targets: dict[int, dict[int, Any]] = {}
        """The views to which addresses in a storage point, by the numbers of both."""

    def __contains__(self, storage: torch.UntypedStorage) -> bool:
        return storage.data_ptr() in self._numbers

    def number(self, storage: torch.UntypedStorage) -> int:
        """The storage's number, a new one where it is not known."""
        address = storage.data_ptr()
        if address not in self._numbers:
            self._numbers[address] = len(self.alive)
            self.alive.append(storage)
        return self._numbers[address]

    def view(self, tensor: torch.Tensor) -> list[Any]:
        """The tensor as a view of its storage."""
        number, dtype = self.number(tensor.untyped_storage()), dtype_name(tensor.dtype)
        self._dtypes.setdefault(number, dtype)
        return [number, dtype, tensor.storage_offset(), list(tensor.shape), list(tensor.stride())]

    def note_types(self, tensors: Iterable[torch.Tensor]) -> None:
        """Known storages have the type of the first tensor there."""
        for tensor in tensors:
            if tensor.layout is torch.strided and tensor.untyped_storage() in self:
                self.view(tensor)

    def forget(self, address: int, *, is_gone: bool) -> int | None:
        """The number of the storage at an address, which other memory takes the place of; None for one that
        came from outside. If it `is_gone`, the address may become another's."""
        if address not in self._numbers:
            return None
        number = self._numbers.pop(address) if is_gone else self._numbers[address]
        self.alive[number] = torch.UntypedStorage(0)
        return number

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Address and bytes of each storage."""
        return [(storage.data_ptr(), storage.nbytes()) for storage in self.alive]

    # Addresses ------------------------------------------------------------------------------------

    def without_addresses(self, tensor: torch.Tensor) -> tuple[torch.Tensor, list[dict[str, Any]]]:
        """The bytes of a tensor's storage with zeros for addresses, and the operation that puts them back;
        none where there are no addresses."""
        raw = bytes_of(tensor.untyped_storage()).clone()
        if tensor.dtype not in (torch.int64, torch.uint64) or not 0 < raw.numel() <= _MOST_BYTES:
            return raw, []
        views = self._found_in(raw.cpu().numpy().tobytes())
        for place in views:
            raw[place : place + 8] = 0
        if not views:
            return raw, []
        number = self.number(tensor.untyped_storage())
        self._targets[number] = {view[0]: view for view in views.values()}
        return raw, [{"point": number, "to": [[place, {"t": view}] for place, view in views.items()]}]

    def follow(self, operation: dict[str, Any]) -> None:
        """Note that the outputs of an operator of torch's on addresses may be addresses."""
        reached = self._reached([operation["args"], operation["kwargs"]])
        for number, *_ in operation["outputs"] if reached else ():
            self._targets.setdefault(number, {}).update(reached)

    def with_reach(self, launch: dict[str, Any]) -> dict[str, Any]:
        """The record of a launch, with the views that it may reach through addresses in memory."""
        reached = self._reached(launch["args"])
        return launch | {"reaches": [{"t": view} for view in reached.values()]} if reached else launch

    def address(self, value: Any) -> dict[str, Any] | None:
        """A number that is an address here, as a trace has it."""
        if type(value) is not int or not _LEAST_ADDRESS <= value < 1 << 64:
            return None
        views = self._found_in(value.to_bytes(8, "little"))
        return {"a": [{"t": views[0]}]} if views else None

    def _reached(self, values: Any) -> dict[int, Any]:
        given = {view[0] for view in views_in(values)} if self._targets else set()
        return {number: view for point in given for number, view in self._targets.get(point, {}).items()}

    def _found_in(self, raw: bytes) -> dict[int, list[Any]]:
        """A view of the memory behind each address, by its place, of the type that the memory has."""
        views = {}
        for place, (number, offset) in find_addresses(raw, self.spans).items():
            dtype = self._dtypes.get(number, "uint8")
            size = DTYPES[dtype].itemsize
            if offset % size:
                dtype, size = "uint8", 1
            count = (self.alive[number].nbytes() - offset) // size
            views[place] = [number, dtype, offset // size, [count], [1]]
        return views
