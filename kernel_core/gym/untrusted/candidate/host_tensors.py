"""Tracks the candidate's tensors that would lie in the host's memory if there were a GPU.

A tensor that is made without a device lies there, and so does a result of such tensors alone. A kernel with
such an argument fails on a GPU, but not where all memory is the host's. In doubt, a tensor lies on the GPU.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from triton.tools.tensor_descriptor import TensorDescriptor


class HostMemory:
    """Storages that were made there, and not moved since."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}
        """Storages by their addresses, which are unique while the storages are kept."""

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """The tensors were made in host memory."""
        for tensor in tensors:
            if (storage := _storage_of(tensor)) is not None:
                self._storages[storage._cdata] = storage

    def remove(self, tensors: Iterable[torch.Tensor]) -> None:
        """The tensors were moved to the GPU."""
        for tensor in tensors:
            if (storage := _storage_of(tensor)) is not None:
                self._storages.pop(storage._cdata, None)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Return True if it lies there."""
        storage = _storage_of(tensor)
        return storage is not None and storage._cdata in self._storages

    def check(self, values: Iterable[object]) -> None:
        """Raises, as Triton does on a GPU, where a kernel would be given such a tensor."""
        for place, given in enumerate(values):
            value = given.base if isinstance(given, TensorDescriptor) else given
            if isinstance(value, torch.Tensor) and value.numel() and self.holds(value):
                raise ValueError(
                    f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?): make it "
                    "with device="
                )


def _storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # a sparse tensor has none
        return None
