"""Indices of a kernel: groups of axes with one flat index, digits of it, and offsets in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.generator.sizes import host, is_one, product


@dataclass(frozen=True, eq=False)
class Group:
    """Axes that a kernel walks with one flat index, such as `i` or `rows`."""

    name: str
    """Name of the index in the kernel, one axis or a scalar."""
    sizes: tuple[int, ...]
    letters: tuple[str, ...]
    """Names of the axes, such as `N`, `C`."""
    view: str = ""
    """`[:, None]` or `[None, :]` where the kernel has tiles."""
    mask: str = ""
    """Condition on the index, viewed; empty where every index is inside."""
    depth: int = 0
    """Level of loops at which the index is defined."""
    extent: str = ""
    """Argument that is the product of the sizes, where the kernel has one."""

    def digit(self, axis: int) -> Index:
        """Index along one of the axes; 0 along an axis of size 1."""
        return 0 if is_one(self.sizes[axis]) else Digit(self, axis, axis)


@dataclass(frozen=True)
class Digit:
    """Index along consecutive axes of a group."""

    group: Group
    first: int
    last: int

    @property
    def size(self) -> int:
        """Number of its values."""
        return product(self.group.sizes[self.first : self.last + 1])


@dataclass(frozen=True)
class Text:
    """An index that was computed, with the groups that it depends on."""

    text: str
    groups: frozenset[Group]
    binds: int = 1


@dataclass(frozen=True)
class Joined:
    """`high * size + low`."""

    high: Index
    size: int
    low: Index


@dataclass(frozen=True)
class Part:
    """Index along consecutive axes of those that another index is split into."""

    whole: Index
    sizes: tuple[int, ...]
    first: int
    last: int


Index = int | Digit | Text | Joined | Part


def is_zero(index: Index) -> bool:
    """True for the literal 0."""
    return isinstance(index, int) and not hasattr(index, "text") and index == 0


def join(high: Index, size: int, low: Index) -> Index:
    """Index along two axes taken as one; neighbouring digits become one digit."""
    if is_zero(high):
        return low
    if is_one(size) and is_zero(low):
        return high
    if (
        isinstance(high, Digit)
        and isinstance(low, Digit)
        and high.group is low.group
        and high.last + 1 == low.first
        and int(low.size) == int(size)
    ):
        return Digit(high.group, high.first, low.last)
    if isinstance(high, Part) and isinstance(low, Part):
        merged = _parts_joined(high, size, low)
        if merged is not None:
            return merged
    if isinstance(high, Joined):
        merged = join(high.low, size, low)
        if not (isinstance(merged, Joined) and merged.high is high.low and merged.low is low):
            return join(high.high, high.size * size, merged)
    if isinstance(high, Digit | Part) and isinstance(low, Joined):
        front = join(high, _over(size, low.size), low.high)
        if not isinstance(front, Joined):
            return Joined(front, low.size, low.low)
    return Joined(high, size, low)


def _parts_joined(high: Part, size: int, low: Part) -> Index | None:
    """Index along the axes of two neighbouring parts; that which was split where these are all its axes."""
    if (high.whole, high.sizes, high.last + 1) != (low.whole, low.sizes, low.first):
        return None
    if int(product(low.sizes[low.first : low.last + 1])) != int(size):
        return None
    outside = (*high.sizes[: high.first], *high.sizes[low.last + 1 :])
    if all(map(is_one, outside)):
        return high.whole
    return Part(high.whole, high.sizes, high.first, low.last)


def _over(size: int, low: int) -> int:
    return size // low if int(low) and int(size) % int(low) == 0 else size


def flatten(coords: Sequence[Index], shape: Sequence[int]) -> Index:
    """Index of an element in memory that has its axes one after another."""
    index: Index = 0
    for coord, size in zip(coords, shape, strict=True):
        index = join(index, size, coord)
    return index


def groups_of(index: Index) -> frozenset[Group]:
    """Groups that an index depends on."""
    if isinstance(index, Digit):
        return frozenset([index.group])
    if isinstance(index, Text):
        return index.groups
    if isinstance(index, Joined):
        return groups_of(index.high) | groups_of(index.low)
    return groups_of(index.whole) if isinstance(index, Part) else frozenset()


LETTERS = {
    1: ("N",), 2: ("M", "N"), 3: ("B", "M", "N"), 4: ("B", "C", "H", "W"), 5: ("B", "C", "D", "H", "W"),
}  # fmt: skip


AXES = {
    3: ("batch", "channels", "length"),
    4: ("batch", "channels", "height", "width"),
    5: ("batch", "channels", "depth", "height", "width"),
}
"""Names that the host has for dimensions of an image where it needs them one by one, by rank."""


def image_letters(rank: int) -> tuple[str, ...]:
    """Names of the axes of a batch of images, in a kernel."""
    return ("B", "C", *("D", "H", "W")[5 - rank :]) if rank > 3 else ("B", "C", "L")


def letters(rank: int) -> tuple[str, ...]:
    """Names of a shape's axes."""
    return LETTERS.get(rank) or tuple(f"D{k}" for k in range(rank))


def key(index: Index) -> str:
    """Text that tells indices apart."""
    if isinstance(index, Digit):
        return f"{id(index.group)}.{index.first}.{index.last}"
    if isinstance(index, Text):
        return index.text
    if isinstance(index, Joined):
        return f"({key(index.high)}*{host(index.size)}+{key(index.low)})"
    if isinstance(index, Part):
        return f"{key(index.whole)}[{', '.join(map(host, index.sizes))}][{index.first}:{index.last + 1}]"
    return host(index)
