"""Text of one Triton kernel: names, arguments, lines at their depth of loops, and values at indices.

`at(value, coords)` writes what is needed to have a value at an index and returns its name. Layout changes
the index, pointwise operators write a line, tensors in memory are loaded. A line is written at the depth
where the last of its indices is known, so what a loop does not change stands before it.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kernel_core.generator.index import (
    Digit,
    Group,
    Index,
    Joined,
    Text,
    flatten,
    groups_of,
    is_zero,
    join,
    key,
    letters,
)  # fmt: skip
from kernel_core.generator.ir import Value
from kernel_core.generator.sizes import Number, Size, canonical, host, is_one, product, same

_ATOM, _PRODUCT, _SUM, _LOOSE = 4, 3, 2, 1
_IDENTIFIER = re.compile(r"\w+")
_LITERAL = re.compile(r"-?\d+(\.\d*)?(e-?\d+)?")
TL = {
    torch.float32: "tl.float32", torch.float16: "tl.float16", torch.bfloat16: "tl.bfloat16",
    torch.float64: "tl.float64", torch.int64: "tl.int64", torch.int32: "tl.int32", torch.int16: "tl.int16",
    torch.int8: "tl.int8", torch.uint8: "tl.uint8", torch.bool: "tl.int1",
}  # fmt: skip
HALF = (torch.float16, torch.bfloat16)
_AS_FLOAT = {torch.float32, *HALF}
"""Types that are computed in float32."""


class Unfusable(Exception):
    """Values that one kernel cannot compute together; the fusion tries fewer."""

    def __init__(self, reason: str, value: Value | None = None) -> None:
        super().__init__(reason)
        self.value = value


class Kernel:
    """A kernel that is being written."""

    def __init__(
        self, name: str, is_inside: Callable[[Value], bool], name_of: Callable[[Value], str]
    ) -> None:
        self.name = name
        self.pointers: dict[str, Value] = {}
        """Loaded tensors by the names of their pointers."""
        self.numbers: dict[str, str] = {}
        """Host texts by the names of arguments that are numbers."""
        self.sizes: dict[str, Size] = {}
        """Sizes by the names of arguments that are sizes."""
        self.totals: dict[str, bool] = {}
        """Arguments that the host computes under the same names; True for numbers of rows or elements."""
        self._arguments: dict[str, str] = {}
        self.uses: dict[int, int] = {}
        """Number of values in the kernel that read a value."""
        self._inside = is_inside
        self._name_of = name_of
        self._taken = {"tl", "mask", "triton", "libdevice", "torch"}
        self._used: set[str] = set()
        """All names that were ever taken."""
        self._body: list[Any] = []
        self._scopes: list[tuple[list[Any], list[Any]]] = [(self._body, self._body)]
        self._memo: list[dict[Any, str]] = [{}]
        self._in_loops: list[list[str]] = [[]]
        self._letters: dict[str, str] = {}
        self._guards: list[Text] = []
        self._masks: dict[frozenset[str], str] = {}
        self.fused: dict[str, None] = {}
        """Names of the pointwise operators in the kernel, in their order."""
        self.done: dict[int, tuple[str, frozenset[Group], tuple[Index, ...] | None]] = {}
        """Values that a schedule made itself, such as sums and products, with the index where they stand."""

    # --- names and arguments

    def fresh(self, wanted: str, depth: int = 0) -> str:
        """A name that nothing has yet; one of a loop is free again behind it."""
        name = re.sub(r"\W", "_", wanted).strip("_") or "x"
        if name[0].isdigit() or keyword.iskeyword(name):
            name = f"x{name}"
        number, result = 2, name
        while result in self._taken:
            result, number = f"{name}{number}", number + 1
        self._taken.add(result)
        self._used.add(result)
        if 0 < depth <= self.depth:
            self._in_loops[depth].append(result)
        return result

    def _argument(self, wanted: str) -> str:
        """A name for an argument, which no line has, not even in a loop that is closed."""
        self._taken |= self._used
        return self.fresh(wanted)

    def size(self, size: Any, name: str = "") -> str:
        """A number in the kernel: a literal, or an argument."""
        if isinstance(size, float) and not isinstance(size, Number):
            return f'float("{size}")' if not math.isfinite(size) else repr(size)
        if not isinstance(size, Size | Number):
            return host(size)
        text = canonical(size)
        if text in self._arguments:
            return self._arguments[text]
        words = [
            word for word in re.findall(r"[A-Za-z_]\w*(?![\w.])", text) if word not in ("shape", "numel")
        ]
        plain = text if _IDENTIFIER.fullmatch(text) else ""
        named = name or self._letters.get(text, "") or plain
        if ".shape" in text or ".numel" in text:
            words = ["size" if isinstance(size, Size) else "scale"]
        argument = self._argument(named or (words[-1] if words else "scale"))
        self.numbers[argument], self._arguments[text] = text, argument
        if isinstance(size, Size):
            self.sizes[argument] = size
        return argument

    def total(self, size: int, name: str, is_flat: bool = False, is_argument: bool = True) -> str:
        """Number of elements, rows or columns: the host has it under the name of the argument.

        `is_flat` is for rows and elements; a number that is no argument is for the grid alone.
        """
        text = canonical(size)
        if not isinstance(size, Size) or text in self._arguments:
            return self.size(size)
        argument = self._argument(name)
        self.sizes[argument], self.totals[argument] = size, is_flat
        if is_argument:
            self.numbers[argument], self._arguments[text] = text, argument
        return argument

    def pointer(self, value: Value) -> str:
        """Argument of a tensor that is loaded or stored."""
        for name, its in self.pointers.items():
            if its is value:
                return name
        name = self.fresh(f"{self._name_of(value)}_ptr")
        self.pointers[name] = value
        return name

    # --- lines

    @property
    def depth(self) -> int:
        """Number of open loops."""
        return len(self._scopes) - 1

    def line(self, text: str, depth: int | None = None) -> None:
        """Write a line here, or before the loop that leaves `depth`."""
        if depth is None or depth >= self.depth:
            self._scopes[-1][0].append(text)
        else:
            self._scopes[depth + 1][1].append(text)

    @contextmanager
    def loop(self, header: str) -> Iterator[None]:
        """Lines within a loop."""
        before: list[Any] = []
        body: list[Any] = []
        self._scopes[-1][0].extend((before, header, ("indent", body)))
        self._scopes.append((body, before))
        self._memo.append({})
        self._in_loops.append([])
        yield
        self._scopes.pop()
        self._memo.pop()
        self._taken -= set(self._in_loops.pop())

    def lines(self) -> list[str]:
        """All lines with their indentation."""

        def flat(items: list[Any], indent: str) -> Iterator[str]:
            for item in items:
                if isinstance(item, str):
                    yield indent + item
                elif isinstance(item, tuple):
                    yield from flat(item[1], indent + "    ")
                else:
                    yield from flat(item, indent)

        return list(flat(self._body, "    "))

    def _remember(self, what: Any, depth: int, make: Callable[[], str]) -> str:
        for memo in reversed(self._memo):
            if what in memo:
                return memo[what]
        name = make()
        self._memo[min(depth, self.depth)][what] = name
        return name

    # --- indices

    def index(self, index: Index) -> tuple[str, int]:
        """Text of an index and how tightly it binds."""
        if isinstance(index, Digit):
            return self._digit(index), _ATOM
        if isinstance(index, Text):
            return index.text, index.binds
        if isinstance(index, Joined):
            high, size, low = index.high, self._named(index.size), self.index(index.low)
            text = f"{_wrapped(self.index(high), _PRODUCT)} * {size}"
            return (text, _PRODUCT) if is_zero(index.low) else (f"{text} + {_wrapped(low, _SUM)}", _SUM)
        return self.size(index), _ATOM

    def _named(self, size: int) -> str:
        return self.size(size, self._letters.get(canonical(size), ""))

    def name_sizes(self, groups: Sequence[Group]) -> None:
        """Let the sizes of groups have the letters of their axes."""
        self._letters = {}
        self._taken |= {group.name for group in groups} | {"start", "carry", "inner", "running"}
        for group in groups:
            for first in range(len(group.sizes)):
                for last in range(first, len(group.sizes)):
                    size = product(group.sizes[first : last + 1])
                    self._letters.setdefault(canonical(size), "".join(group.letters[first : last + 1]))

    def name_axes(self, shape: Sequence[int], names: Sequence[str]) -> None:
        """Let the sizes of a tensor have these names where they have none."""
        for size, letter in zip(shape, names, strict=True):
            self._letters.setdefault(canonical(size), letter)

    def _digit(self, digit: Digit) -> str:
        group, last = digit.group, len(digit.group.sizes) - 1
        while last > digit.last and is_one(group.sizes[last]):
            last -= 1
        first = 0
        while first < digit.first and is_one(group.sizes[first]):
            first += 1
        if digit.first <= first and digit.last >= last:
            return group.name + group.view

        def make() -> str:
            inner = product(group.sizes[digit.last + 1 :])
            text = group.name if is_one(inner) else f"{group.name} // {self._named(inner)}"
            if digit.first > first:
                text += f" % {self._named(digit.size)}"
            name = self.fresh("".join(group.letters[digit.first : digit.last + 1]).lower(), group.depth)
            self.line(f"{name} = {text}", group.depth)
            return name

        return self._remember(("digit", digit), group.depth, make) + group.view

    def condition(self, text: str, index: Index) -> Text:
        """A condition on an index; `{}` is the index."""
        written = self.index(index)
        return Text(text.format(_wrapped(written, _SUM)), groups_of(index))

    @contextmanager
    def guarded(self, *conditions: Text) -> Iterator[None]:
        """Loads only where the conditions hold."""
        self._guards.extend(conditions)
        yield
        del self._guards[len(self._guards) - len(conditions) :]

    def mask(self, indices: Sequence[Index]) -> str:
        """Condition that all groups of some indices, and the guards, are inside."""
        groups: list[Group] = []
        for index in indices:
            groups += [
                group for group in sorted(groups_of(index), key=lambda g: g.name) if group not in groups
            ]
        if not groups:
            return ""  # one element, which is there for all lanes
        guards = list(dict.fromkeys(guard.text for guard in self._guards))
        for guard in self._guards:
            groups += [group for group in sorted(guard.groups, key=lambda g: g.name) if group not in groups]
        parts = list(dict.fromkeys([group.mask for group in groups if group.mask] + guards))
        for named, name in self._masks.items():
            if named <= set(parts):
                parts = [name, *(part for part in parts if part not in named)]
        return _all_of(parts)

    def joined_mask(self, parts: Sequence[str], name: str) -> str:
        """Text of several conditions; a line of the schedule gives it a name that later masks use."""
        self._masks[frozenset(parts)] = name
        return _all_of(parts)

    # --- values

    def in_memory(self, value: Value) -> bool:
        """True if the kernel loads a value rather than computes it."""
        return not self._inside(value) and id(value) not in self.done

    def at(self, value: Value, coords: Sequence[Index], other: float = 0.0) -> str:
        """Name of a value at an index."""
        if id(value) in self.done:
            name, _, expected = self.done[id(value)]
            if expected is not None:
                self._require(value, coords, expected)
            return name
        if not self._inside(value):
            return self._load(value, coords, other)
        what = ("at", id(value), tuple(map(key, coords)), tuple(guard.text for guard in self._guards))
        return self._remember(what, self._depth(coords), lambda: getattr(self, f"_{value.op}")(value, coords))

    def _require(self, value: Value, coords: Sequence[Index], expected: Sequence[Index]) -> None:
        for axis, (coord, wanted) in enumerate(zip(coords, expected, strict=True)):
            if not is_one(value.shape[axis]) and key(coord) != key(wanted):
                raise Unfusable("a result at another index than its own", value)

    def _depth(self, coords: Sequence[Index]) -> int:
        groups = [group for coord in coords for group in groups_of(coord)]
        groups += [group for guard in self._guards for group in guard.groups]
        return max((group.depth for group in groups), default=0)

    def _load(self, value: Value, coords: Sequence[Index], other: float) -> str:
        offset = flatten(
            [0 if is_one(size) else coord for coord, size in zip(coords, value.shape, strict=True)],
            value.shape,
        )
        depth = self._depth([offset])
        self.name_axes(value.shape, letters(value.rank))

        def make() -> str:
            pointer, mask = self.pointer(value), self.mask([offset])
            text = pointer if is_zero(offset) else f"{pointer} + {self.index(offset)[0]}"
            fill = "0.0" if value.dtype.is_floating_point else "0"
            if other:
                fill = self.size(other)
            options = f", mask={mask}, other={fill}" if mask else ""
            cast = ".to(tl.float32)" if value.dtype in HALF else ""
            name = self.fresh(self._name_of(value), depth)
            self.line(f"{name} = tl.load({text}{options}){cast}", depth)
            return name

        return self._remember(
            ("load", id(value), key(offset), tuple(guard.text for guard in self._guards), other), depth, make
        )

    def operand(self, given: Any, shape: Sequence[int], coords: Sequence[Index]) -> str:
        """An operand of a pointwise operator at the result's index."""
        if not isinstance(given, Value):
            return self.size(given)
        lead = len(shape) - given.rank
        inner = [
            0 if is_one(size) or (int(size) == 1 and int(shape[lead + axis]) != 1) else coords[lead + axis]
            for axis, size in enumerate(given.shape)
        ]
        return self.at(given, inner)

    def _point(self, value: Value, coords: Sequence[Index]) -> str:
        entry, compute = value.entry, value.compute
        self.fused.setdefault(entry.name.strip("_"))
        texts: dict[str, str] = {}
        for name, given in zip(entry.parameters, value.inputs, strict=True):
            text = self.operand(given, value.shape, coords)
            if isinstance(given, Value) and _LITERAL.fullmatch(text):
                if compute.is_floating_point and name != "condition":
                    text = repr(float(text))
            elif isinstance(given, Value):
                if name == "condition":
                    text = text if given.dtype is torch.bool else f"({text} != 0)"
                elif (
                    given.dtype != compute and compute.is_floating_point and not given.dtype.is_floating_point
                ):
                    text = f"{text}.to({TL[torch.float32 if compute in HALF else compute]})"
                elif given.dtype != compute and not {given.dtype, compute} <= _AS_FLOAT:
                    text = f"{text}.to({TL[compute]})"
            elif entry.kind == "float" and isinstance(given, int) and not isinstance(given, bool):
                text = f"{text}.0" if text.lstrip("-").isdigit() else text
            texts[name] = f"({text})" if text.startswith("-") else text
        return self._assign(value, entry.text(texts), coords)

    def _assign(self, value: Value, text: str, coords: Sequence[Index]) -> str:
        depth = min(self._depth(coords), self.depth)
        name = self.fresh(_result_name(value), depth)
        self.line(f"{name} = {text}", depth)
        return name

    def _cast(self, value: Value, coords: Sequence[Index]) -> str:
        text = self.at(value.inputs[0], coords)
        source = value.inputs[0].dtype
        if _LITERAL.fullmatch(text):
            return repr(float(text)) if value.dtype.is_floating_point else text
        if (value.dtype in HALF and source is torch.float32) or (
            source in HALF and value.dtype is torch.float32
        ):
            return (
                text
                if value.dtype is torch.float32
                else self._assign(value, f"{text}.to({TL[value.dtype]}).to(tl.float32)", coords)
            )
        if value.dtype is torch.bool:
            return self._assign(value, f"{text} != 0", coords)
        return self._assign(value, f"{text}.to({TL[value.dtype]})", coords)

    def _copy(self, value: Value, coords: Sequence[Index]) -> str:
        return self.at(value.inputs[0], coords)

    def _full(self, value: Value, coords: Sequence[Index]) -> str:
        number = value.inputs[0]
        if value.dtype.is_floating_point and isinstance(number, int) and not isinstance(number, Size):
            number = float(number)
        return self.size(number)

    def _iota(self, value: Value, coords: Sequence[Index]) -> str:
        first, step = value.inputs
        text, binds = self.index(coords[value.dim])
        if not (isinstance(step, int) and int(step) == 1):
            text, binds = f"{_wrapped((text, binds), _PRODUCT)} * {self.size(step)}", _PRODUCT
        if not (isinstance(first, int) and not isinstance(first, Size) and first == 0):
            text, binds = f"{self.size(first)} + {text}", _SUM
        return text if binds == _ATOM else f"({text})"

    def _reshape(self, value: Value, coords: Sequence[Index]) -> str:
        return self.at(value.inputs[0], self.reshaped(coords, value.shape, value.inputs[0].shape))

    def reshaped(self, coords: Sequence[Index], shape: Sequence[int], source: Sequence[int]) -> list[Index]:
        """Index in the source of a reshape: axes are matched where their products agree."""
        result: list[Index] = []
        a, b = 0, 0
        while a < len(shape) or b < len(source):
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
        result: list[Index] = []
        for axis, size in enumerate(sizes):
            if is_one(size):
                result.append(0)
                continue
            inner = product(sizes[axis + 1 :])
            text, binds = self.index(index)
            if not is_one(inner):
                text, binds = f"{_wrapped((text, binds), _PRODUCT)} // {_atom(self._named(inner))}", _PRODUCT
            if any(not is_one(size) for size in sizes[:axis]):
                text, binds = f"{_wrapped((text, binds), _PRODUCT)} % {_atom(self._named(size))}", _PRODUCT
            result.append(Text(text, groups_of(index), binds))
        return result

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
            _wrapped(self.index(coords[axis]), _PRODUCT if binds == _PRODUCT else _SUM), *map(self.size, more)
        )
        groups = groups_of(coords[axis])
        return [*coords[:axis], Text(text, groups, binds), *coords[axis + 1 :]]

    def _slice(self, value: Value, coords: Sequence[Index]) -> str:
        start, step = value.start, value.step
        is_plain = isinstance(start, int) and not isinstance(start, Size) and start == 0
        if is_zero(coords[value.dim]):
            return self.at(value.inputs[0], [*coords[: value.dim], start, *coords[value.dim + 1 :]])
        if not (isinstance(step, int) and int(step) == 1):
            coords = self._changed(coords, value.dim, "{} * {}", _PRODUCT, step)
        if not is_plain:
            coords = self._changed(coords, value.dim, "{} + {}", _SUM, start)
        return self.at(value.inputs[0], coords)

    def _flip(self, value: Value, coords: Sequence[Index]) -> str:
        for axis in value.dims:
            size, index = self.size(value.shape[axis]), coords[axis]
            text = f"{size} - 1 - {_wrapped(self.index(index), _PRODUCT)}"
            coords = [*coords[:axis], Text(text, groups_of(index), _SUM), *coords[axis + 1 :]]
        return self.at(value.inputs[0], coords)

    def _roll(self, value: Value, coords: Sequence[Index]) -> str:
        size, index = value.shape[value.dim], coords[value.dim]
        back = (size - value.shift) if value.shift > 0 else -value.shift
        if int(back) < 0 or int(value.shift) > int(size):
            back = size - (value.shift % size)
        text = f"({_wrapped(self.index(index), _SUM)} + {self.size(back)}) % {self.size(size)}"
        return self.at(
            value.inputs[0],
            [*coords[: value.dim], Text(text, groups_of(index), _PRODUCT), *coords[value.dim + 1 :]],
        )

    def _pad(self, value: Value, coords: Sequence[Index]) -> str:
        x, inner, conditions = value.inputs[0], list(coords), list[Text]()
        for axis, before in enumerate(value.before):
            if host(value.shape[axis]) == host(x.shape[axis]):
                continue
            text = f"{_wrapped(self.index(coords[axis]), _SUM)} - {self.size(before)}"
            size = self.size(x.shape[axis])
            index = Text(text, groups_of(coords[axis]), _SUM)
            if value.mode == "circular":
                index = Text(f"({text} + {size}) % {size}", index.groups, _PRODUCT)
            elif value.mode == "replicate":
                index = Text(f"tl.minimum(tl.maximum({text}, 0), {size} - 1)", index.groups, _ATOM)
            elif value.mode == "reflect":
                index = Text(f"{size} - 1 - tl.abs({size} - 1 - tl.abs({text}))", index.groups, _SUM)
            else:
                conditions += [Text(f"{text} >= 0", index.groups), Text(f"{text} < {size}", index.groups)]
            inner[axis] = index
        if not conditions:
            return self.at(x, inner)
        with self.guarded(*conditions):
            if not self._inside(x) and not isinstance(value.value, Size | Number):
                return self._load(x, inner, float(value.value))
            loaded = self.at(x, inner)
        inside = " & ".join(f"({condition.text})" for condition in conditions)
        return self._assign(value, f"tl.where({inside}, {loaded}, {self.size(value.value)})", coords)

    def _cat(self, value: Value, coords: Sequence[Index]) -> str:
        axis, start, text = value.dim, 0, ""
        index = coords[axis]
        parts: list[tuple[str, str]] = []
        for number, part in enumerate(value.inputs):
            written = _wrapped(self.index(index), _SUM)
            end = start + part.shape[axis]
            conditions = [] if number == 0 else [Text(f"{written} >= {self.size(start)}", groups_of(index))]
            if number < len(value.inputs) - 1:
                conditions.append(Text(f"{written} < {self.size(end)}", groups_of(index)))
            inner = index if number == 0 else Text(f"{written} - {self.size(start)}", groups_of(index), _SUM)
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
        at = Text(self.at(index, coords), self._groups(coords), _ATOM)
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
            inner.append(Text(name, self._groups(at), _ATOM))
        return self.at(x, inner)

    def _groups(self, coords: Sequence[Index]) -> frozenset[Group]:
        return frozenset(group for coord in coords for group in groups_of(coord))


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


def _all_of(conditions: Sequence[str]) -> str:
    if len(conditions) == 1:
        return conditions[0]
    return " & ".join(part if _IDENTIFIER.fullmatch(part) else f"({part})" for part in conditions)


def _result_name(value: Value) -> str:
    """Name of a line's result by its operator."""
    name = value.entry.name.strip("_") if value.op == "point" else value.op
    return _RESULTS.get(name, name)


_RESULTS = {
    "add": "total", "sub": "diff", "mul": "scaled", "true_divide": "quotient", "square": "squared",
    "maximum": "upper", "minimum": "lower", "cast": "value", "where": "chosen", "sqrt": "root",
    "gelu_erf": "gelu", "gelu_tanh": "gelu", "neg": "negated", "exp": "exps", "pad": "padded",
    "cat": "joined", "abs": "size", "log": "logs", "power": "powered", "rsqrt": "inverse",
}  # fmt: skip


def _wrapped(written: tuple[str, int], least: int) -> str:
    return f"({written[0]})" if written[1] < least else written[0]


def _atom(text: str) -> str:
    return text if _IDENTIFIER.fullmatch(text) else f"({text})"


__all__ = ["HALF", "TL", "Kernel", "Unfusable", "join"]
