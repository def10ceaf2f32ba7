"""A kernel that is being written: values at indices, through layout operators.

`at(value, coords)` writes what is needed to have a value at an index and returns its name. Layout changes
the index, pointwise operators write a line, tensors in memory are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel_core.generator.index import Digit, Index, Joined, Part, Text, flatten, groups_of, is_zero
from kernel_core.generator.ir import Value
from kernel_core.generator.places import ATOM, PRODUCT, SUM, wrapped
from kernel_core.generator.sizes import Size, host, is_named, is_one, product, same
from kernel_core.generator.values import KernelValues, Unfusable


class Kernel(KernelValues):
    """A kernel with layout operators, which change the index at which values are read."""

    def _reshape(self, value: Value, coords: Sequence[Index]) -> str:
        return self.at(value.inputs[0], self.reshaped(coords, value.shape, value.inputs[0].shape))

    def reshaped(self, coords: Sequence[Index], shape: Sequence[int], source: Sequence[int]) -> list[Index]:
        """Index in the source of a reshape: axes are matched where their products agree."""
        result: list[Index] = []
        a, b = 0, 0
        while a < len(shape) or b < len(source):
            if a < len(shape) and b < len(source) and is_one(shape[a]) != is_one(source[b]):
                result += [0] * is_one(source[b])  # a named size may be 1 by chance, and is no match
                a, b = a + is_one(shape[a]), b + is_one(source[b])
                continue
            ours, theirs = a + 1, b + 1
            left, right = (int(shape[a]) if a < len(shape) else 1), (int(source[b]) if b < len(source) else 1)
            while left != right or (ours > len(shape) and theirs > len(source)):
                if ours > len(shape) and theirs > len(source):
                    break
                if left < right and ours < len(shape):
                    left, ours = left * int(shape[ours]), ours + 1
                elif right < left and theirs < len(source):
                    right, theirs = right * int(source[theirs]), theirs + 1
                else:
                    raise Unfusable("a reshape with sizes that do not agree")
            mine, its = list(range(a, min(ours, len(shape)))), list(range(b, min(theirs, len(source))))
            if len(mine) == len(its) == 1:
                result.append(coords[mine[0]])
            elif mine and its:
                index = flatten([coords[k] for k in mine], [shape[k] for k in mine])
                result += self.split(index, [source[k] for k in its])
            else:
                result += [0] * len(its)
            a, b = ours, theirs
        return result

    def split(self, index: Index, sizes: Sequence[int]) -> list[Index]:
        """Index along each of several axes from the index along all."""
        if len(sizes) == 1:
            return [index]
        if isinstance(index, Joined) and same(index.size, product(sizes[1:])):
            return [index.high, *self.split(index.low, sizes[1:])]
        if isinstance(index, Digit):
            parts = _digits(index, sizes)
            if parts is not None:
                return parts
        own = tuple(sizes)
        return [0 if is_one(size) else Part(index, own, axis, axis) for axis, size in enumerate(own)]

    def _permute(self, value: Value, coords: Sequence[Index]) -> str:
        inner: list[Index] = [0] * len(coords)
        for place, axis in enumerate(value.order):
            inner[axis] = coords[place]
        return self.at(value.inputs[0], inner)

    def _expand(self, value: Value, coords: Sequence[Index]) -> str:
        x = value.inputs[0]
        lead = value.rank - x.rank
        return self.at(x, [0 if int(size) == 1 else coords[lead + axis] for axis, size in enumerate(x.shape)])

    def _changed(
        self, coords: Sequence[Index], axis: int, template: str, binds: int, *more: Any
    ) -> list[Index]:
        """Index with one axis computed from the old one."""
        text = template.format(
            wrapped(self.index(coords[axis]), PRODUCT if binds == PRODUCT else SUM), *map(self.size, more)
        )
        groups = groups_of(coords[axis])
        return [*coords[:axis], Text(text, groups, binds), *coords[axis + 1 :]]

    def _slice(self, value: Value, coords: Sequence[Index]) -> str:
        start, step = value.start, value.step
        is_plain = isinstance(start, int) and not isinstance(start, Size) and start == 0
        if is_zero(coords[value.dim]):
            return self.at(value.inputs[0], [*coords[: value.dim], start, *coords[value.dim + 1 :]])
        if not (isinstance(step, int) and int(step) == 1):
            coords = self._changed(coords, value.dim, "{} * {}", PRODUCT, step)
        if not is_plain:
            coords = self._changed(coords, value.dim, "{} + {}", SUM, start)
        return self.at(value.inputs[0], coords)

    def _flip(self, value: Value, coords: Sequence[Index]) -> str:
        for axis in value.dims:
            size, index = self.size(value.shape[axis]), coords[axis]
            text = f"{size} - 1 - {wrapped(self.index(index), PRODUCT)}"
            coords = [*coords[:axis], Text(text, groups_of(index), SUM), *coords[axis + 1 :]]
        return self.at(value.inputs[0], coords)

    def _roll(self, value: Value, coords: Sequence[Index]) -> str:
        size, index = value.shape[value.dim], coords[value.dim]
        back = (size - value.shift) if value.shift > 0 else -value.shift
        if int(back) < 0 or int(value.shift) > int(size):
            back = size - (value.shift % size)
        text = f"({wrapped(self.index(index), SUM)} + {self.size(back)}) % {self.size(size)}"
        return self.at(
            value.inputs[0],
            [*coords[: value.dim], Text(text, groups_of(index), PRODUCT), *coords[value.dim + 1 :]],
        )

    def _pad(self, value: Value, coords: Sequence[Index]) -> str:
        x, inner, conditions = value.inputs[0], list(coords), list[Text]()
        for axis, before in enumerate(value.before):
            if host(value.shape[axis]) == host(x.shape[axis]):
                continue
            starts = not is_named(before) and int(before) == 0
            text = wrapped(self.index(coords[axis]), SUM)
            text = text if starts else f"{text} - {self.size(before)}"
            size = self.size(x.shape[axis])
            index = Text(text, groups_of(coords[axis]), SUM)
            if value.mode == "circular":
                index = Text(f"({text} + {size}) % {size}", index.groups, PRODUCT)
            elif value.mode == "replicate":
                index = Text(f"tl.minimum(tl.maximum({text}, 0), {size} - 1)", index.groups, ATOM)
            elif value.mode == "reflect":
                index = Text(f"{size} - 1 - tl.abs({size} - 1 - tl.abs({text}))", index.groups, SUM)
            else:
                conditions += [] if starts else [Text(f"{text} >= 0", index.groups)]
                conditions.append(Text(f"{text} < {size}", index.groups))
            inner[axis] = index
        if not conditions:
            return self.at(x, inner)
        with self.guarded(*conditions):
            if not self._inside(x) and not is_named(value.value):
                return self._load(x, inner, float(value.value))
            loaded = self.at(x, inner)
        inside = " & ".join(f"({condition.text})" for condition in conditions)
        return self._assign(value, f"tl.where({inside}, {loaded}, {self.size(value.value)})", coords)

    def _cat(self, value: Value, coords: Sequence[Index]) -> str:
        axis, start, text = value.dim, 0, ""
        index = coords[axis]
        parts: list[tuple[str, str]] = []
        for number, part in enumerate(value.inputs):
            written = wrapped(self.index(index), SUM)
            end = start + part.shape[axis]
            conditions = [] if number == 0 else [Text(f"{written} >= {self.size(start)}", groups_of(index))]
            if number < len(value.inputs) - 1:
                conditions.append(Text(f"{written} < {self.size(end)}", groups_of(index)))
            inner = index if number == 0 else Text(f"{written} - {self.size(start)}", groups_of(index), SUM)
            with self.guarded(*conditions):
                parts.append(
                    (conditions[-1].text, self.at(part, [*coords[:axis], inner, *coords[axis + 1 :]]))
                )
            start = end
        text = parts[-1][1]
        for condition, name in reversed(parts[:-1]):
            text = f"tl.where({condition}, {name}, {text})"
        return self._assign(value, text, coords)

    def _gather(self, value: Value, coords: Sequence[Index]) -> str:
        x, index = value.inputs
        at = Text(self.at(index, coords), self._groups(coords), ATOM)
        return self.at(x, [*coords[: value.dim], at, *coords[value.dim + 1 :]])

    def _take(self, value: Value, coords: Sequence[Index]) -> str:
        x, *indices = value.inputs
        end = value.place + indices[0].rank
        at, rest = coords[value.place : end], [*coords[: value.place], *coords[end:]]
        names = iter([self.at(index, at) for index in indices])
        inner: list[Index] = []
        for axis in range(x.rank):
            if axis not in value.dims:
                inner.append(rest.pop(0))
                continue
            name = next(names)
            if value.wraps:
                size = self.size(x.shape[axis])
                name = f"tl.where({name} < 0, {name} + {size}, {name})"
            inner.append(Text(name, self._groups(at), ATOM))
        return self.at(x, inner)


def _digits(index: Digit, sizes: Sequence[int]) -> list[Index] | None:
    """The digit's own axes where these are the sizes, as products of neighbours; None elsewhere."""
    result: list[Index] = []
    axis = index.first
    for size in sizes:
        if is_one(size):
            result.append(0)
            continue
        total, first = 1, axis
        while axis <= index.last and total < int(size):
            total, axis = total * int(index.group.sizes[axis]), axis + 1
        if total != int(size):
            return None
        result.append(Digit(index.group, first, axis - 1))
    while axis <= index.last and is_one(index.group.sizes[axis]):
        axis += 1
    return result if axis == index.last + 1 else None
