"""Shapes as host texts: dimensions of a tensor, and slices of `shape` in place of single dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernel_core.generator.names import canonical
from kernel_core.generator.sizes import Run, Size, host, product, run_of


def dimensions(tensor: str, shape: Sequence[int]) -> list[int]:
    """Sizes of a tensor that the host calls `tensor`."""
    runs = [Run(tensor, len(shape), axis, axis) for axis in range(len(shape))]
    return [Size(size, run.text, factors=(run,)) for size, run in zip(shape, runs, strict=True)]


def run_in(size: int, tensors: Iterable[tuple[str, Sequence[int]]]) -> Run | None:
    """Dimensions of the first of some tensors whose product a size is; tensors are names with shapes."""
    text = canonical(size)
    for name, shape in tensors if isinstance(size, Size) else ():
        rank = len(shape)
        for length in range(1, rank + 1):
            for first in range(rank - length + 1):
                if canonical(product(shape[first : first + length])) == text:
                    return Run(name, rank, first, first + length - 1)
    return None


def shape_text(shape: Sequence[int]) -> str:
    """Host text of a shape; neighbouring dimensions of one tensor are a slice of its shape."""
    parts: list[str] = []
    axis = 0
    while axis < len(shape):
        run, end = _dimension(shape[axis]), axis + 1
        while run is not None and end < len(shape):
            following = _dimension(shape[end])
            if following is None or following.tensor != run.tensor or following.first != run.last + 1:
                break
            run, end = Run(run.tensor, run.rank, run.first, following.last), end + 1
        if run is None or (end == axis + 1 and (run.rank, run.first, axis) != (2, 0, 0)):
            parts.append(host(shape[axis]))
        elif run.first == 0 and run.last == run.rank - 1:
            parts.append(f"*{run.tensor}.shape")
        else:
            last = {run.rank - 1: "", run.rank - 2: "-1"}.get(run.last, str(run.last + 1))
            parts.append(f"*{run.tensor}.shape[{run.first or ''}:{last}]")
        axis = end
    if len(parts) == 1 and parts[0].startswith("*"):
        return parts[0][1:]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _dimension(size: int) -> Run | None:
    run = run_of(size)
    return run if run is not None and run.first == run.last else None


def order_text(order: Sequence[int]) -> str:
    """Host text of the method of a tensor that gives its axes another order."""
    axes = list(range(len(order)))
    if list(order) != [*axes[:-2], *axes[:-3:-1]]:
        return f"permute({', '.join(map(str, order))})"
    return "t()" if len(order) == 2 else "transpose(-2, -1)"


def starred(arguments: list[str], ranks: dict[str, int], lengths: dict[str, int]) -> list[str]:
    """The arguments with a shape's last dimensions, or all numbers of a tuple, as one with a star."""
    result: list[str] = []
    while arguments:
        text, *arguments = arguments
        tensor, _, axis = text.removesuffix("]").partition(".shape[")
        name, _, number = text.removesuffix("]").rpartition("[")
        if axis.isdigit() and tensor in ranks:
            first, rank = int(axis), ranks[tensor]
            rest = [f"{tensor}.shape[{k if k < rank - 1 else -1}]" for k in range(first + 1, rank)]
            star = f"*{tensor}.shape[{first}:]" if first else f"*{tensor}.shape"
        elif number == "0" and name in lengths:
            rest = [f"{name}[{k}]" for k in range(1, lengths[name])]
            star = f"*{name}"
        else:
            rest, star = [], text
        if rest and arguments[: len(rest)] == rest:
            text, arguments = star, arguments[len(rest) :]
        result.append(text)
    return result


class Shape(tuple[int, ...]):
    """Sizes with texts, with the methods of `torch.Size`."""

    def numel(self) -> int:
        """Return the product of the sizes."""
        return product(self)

    def __getitem__(self, key: Any) -> Any:
        part = tuple.__getitem__(self, key)
        return Shape(part) if isinstance(key, slice) else part
