"""A launch of a CUDA C++ kernel: its packed parameters, in which addresses stand for memory that is known."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

_ADDRESS = struct.Struct("<Q")


def find_addresses(parameters: bytes, spans: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """For each address among the parameters, by position: its span (start, bytes) and its offset there.
    Addresses are aligned, in structures as well. A number that happens to be an address in a span is treated
    as one: it is restored as the same place in the same memory."""
    pointers = {}
    for place in range(0, len(parameters) - _ADDRESS.size + 1, _ADDRESS.size):
        (value,) = _ADDRESS.unpack_from(parameters, place)
        for number, (start, num_bytes) in enumerate(spans):
            if start <= value < start + num_bytes:
                pointers[place] = (number, value - start)
                break
    return pointers


def put_addresses(parameters: bytes, addresses: Mapping[int, int]) -> bytes:
    """The parameters with other addresses in their places. Raises `ValueError` for a place outside."""
    packed = bytearray(parameters)
    for place, address in addresses.items():
        if not 0 <= place <= len(packed) - _ADDRESS.size:
            raise ValueError(f"an address at byte {place} of {len(packed)} bytes of parameters")
        _ADDRESS.pack_into(packed, place, address)
    return bytes(packed)


def arguments_in(parameters: bytes, spans: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """The arguments of a launch as a trace has them: the parameters, and a view of a storage for each address
    among them. `spans` are the storages' addresses and sizes."""
    described: dict[str, Any] = {"parameters": parameters.hex()}
    for place, (number, offset) in find_addresses(parameters, spans).items():
        described[str(place)] = {"t": [number, "uint8", offset, [spans[number][1] - offset], [1]]}
    return described
