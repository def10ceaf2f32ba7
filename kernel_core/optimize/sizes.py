"""Names of a problem's sizes: free dimensions of inputs, and widths that weights or attributes share."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kernel_core.generator.index import letters

LEAST_SIZE = 16
"""Smaller attributes and weight dimensions count groups, kernels or strides, and stay literals."""
_MOST_RATIO = 8


class Sizes:
    """Names of sizes: free dimensions of inputs, and widths that weights or attributes share."""

    def __init__(
        self,
        inputs: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
        attributes: Mapping[str, int | tuple[int, ...]],
    ) -> None:
        shared = {size for tensor in weights.values() for size in tensor.shape if size >= LEAST_SIZE}
        shared |= {n for value in attributes.values() for n in whole_numbers(value) if n >= LEAST_SIZE}
        self.free: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._derived: dict[int, str] = {}
        widths: list[int] = []
        for tensor in inputs.values():
            for size, letter in zip(tensor.shape, letters(tensor.dim()), strict=True):
                if size in shared:
                    widths.append(size)
                elif size > 1 and size not in self.free:
                    self.free[size] = self._name(size, letter.upper())
        for size in dict.fromkeys([*reversed(widths), *sorted(shared)]):
            self._derive(size)

    def _name(self, size: int, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._names.values():
            number += 1
            name = f"{wanted}{number}"
        self._names[size] = name
        return name

    def _derive(self, size: int) -> None:
        """Name a width, or write it as a small multiple or part of one that has a name."""
        for base in self._names:
            if base in self.free or base == size:
                continue
            if size % base == 0 and size // base <= _MOST_RATIO:
                self._derived[size] = f"{size // base} * {self._names[base]}"
                return
            if base % size == 0 and base // size <= _MOST_RATIO:
                self._derived[size] = f"{self._names[base]} // {base // size}"
                return
        self._name(size, "WIDTH")

    def text(self, size: int) -> str:
        """Return a size as text over the constants' names."""
        return self._names.get(size) or self._derived.get(size) or repr(int(size))

    def pattern(self, tensor: torch.Tensor) -> tuple[int | str, ...]:
        """Return a shape with the names of its free dimensions."""
        return tuple(self.free.get(size, int(size)) for size in tensor.shape)

    def constants(self) -> dict[str, int]:
        """Return each named size."""
        return {name: size for size, name in self._names.items()}


def whole_numbers(value: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of an attribute."""
    return value if isinstance(value, tuple) else (value,)
