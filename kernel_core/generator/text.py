"""Text of one Triton kernel: names, arguments, lines at their depth of loops, indices and masks.

A line is written at the depth where the last of its indices is known, so what a loop does not change
stands before it.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kernel_core.generator.index import (
    Digit,
    Group,
    Index,
    Joined,
    Part,
    Text,
    groups_of,
    is_zero,
)  # fmt: skip
from kernel_core.generator.ir import Value
from kernel_core.generator.lines import joined
from kernel_core.generator.names import canonical, take_name
from kernel_core.generator.sizes import Number, Size, host, is_one, product

ATOM, PRODUCT, SUM, LOOSE = 4, 3, 2, 1
IDENTIFIER = re.compile(r"\w+")
NAME = re.compile(r"(?<![.\w])[A-Za-z_]\w*(?!\w|=(?!=))")
"""A name that is no attribute and no keyword of a call."""
_VIEWED = re.compile(r"\w+(\[[:, None]+\])?")
_WALKED = ("i", "row", "rows", "cols")
"""Groups that walk over elements or rows."""


class KernelText:
    """Text of a kernel that is being written."""

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
        self._taken = {"tl", "triton", "libdevice", "torch"}
        self._used: set[str] = set()
        """All names that were ever taken."""
        self._body: list[Any] = []
        self._scopes: list[tuple[list[Any], list[Any]]] = [(self._body, self._body)]
        self._memo: list[dict[Any, str]] = [{}]
        self._in_loops: list[list[str]] = [[]]
        self._letters: dict[str, str] = {}
        self._guards: list[Text] = []
        self._splits: dict[str, list[tuple[str, str, str]]] = {}
        """Digits of each group: name, what the index is divided by, and what its remainder is taken of."""
        self._renamed: dict[str, str] = {}
        self.results: set[int] = set()
        """Values that are stored and that nothing else in the kernel reads."""
        self.pure: set[str] = set()
        """Names of lines that may be joined to the line that reads them."""
        self._stems: dict[str, str] = {}
        self._masks: dict[frozenset[str], str] = {}
        self.fused: dict[str, None] = {}
        """Names of the pointwise operators in the kernel, in their order."""
        self.fills: dict[int, str] = {}
        """Numbers that loads of values have beyond the edge, where a reduction needs another than 0."""
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
        self._stems[result] = name
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
        plain = text if IDENTIFIER.fullmatch(text) else ""
        named = name or self._letters.get(text, "") or plain
        if ".shape" in text or ".numel" in text:
            words = ["size" if isinstance(size, Size) else "scale"]
        rest = "one_minus_" if re.fullmatch(r"1(\.0)? - [\w.]+", text) else ""
        argument = self._argument(named or (rest + words[-1] if words else "scale"))
        self.numbers[argument], self._arguments[text] = text, argument
        if isinstance(size, Size):
            self.sizes[argument] = size
        return argument

    def total(
        self, size: int, name: str, is_flat: bool = False, is_argument: bool = True, is_own: bool = False
    ) -> str:
        """Number of elements, rows or columns: the host has it under the name of the argument.

        `is_flat` is for rows and elements; a number that is no argument is for the grid alone. A number that
        `is_own` has an argument of its own even where another one is equal.
        """
        text = canonical(size)
        if not isinstance(size, Size) or (text in self._arguments and not is_own):
            return self.size(size)
        argument = self._argument(name)
        self.sizes[argument], self.totals[argument] = size, is_flat
        if is_argument:
            self.numbers[argument] = text
            self._arguments.setdefault(text, argument)
        return argument

    def pointer(self, value: Value) -> str:
        """Argument of a tensor that is loaded or stored."""
        for name, its in self.pointers.items():
            if its is value:
                return name
        return self.output(value, self._name_of(value))

    def output(self, value: Value, stem: str = "out") -> str:
        """Argument of a tensor, whose number is that of its stem."""
        stems = [name.removesuffix("_ptr") for name in self.pointers]
        number = sum(re.fullmatch(rf"{stem}\d*", known) is not None for known in stems)
        name = self._argument(f"{stem}{number + 1 if number else ''}_ptr")
        self.pointers[name] = value
        return name

    def own_name(self, text: str, role: str, tensor: str, depth: int) -> str:
        """A name by its role in the kernel; the second of a role has the name of its tensor too."""
        return self.named(f"{tensor}_{role}" if role in self._used | self._taken else role, text, depth)

    def named(self, wanted: str, text: str, depth: int = 0) -> str:
        """A name for an expression without loads, which its only reader may have in its place."""
        name = self.fresh(wanted, depth)
        self.line(f"{name} = {text}", depth)
        self.pure.add(name)
        return name

    # --- lines

    @property
    def depth(self) -> int:
        """Number of open loops."""
        return len(self._scopes) - 1

    def line(self, text: str, depth: int | None = None) -> None:
        """Write a line here, or before the loop that leaves `depth`."""
        name, _, value = text.partition(" = ")
        self._taken |= {name} if value else set()
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

        lines = joined(list(flat(self._body, "")), self.pure)
        names = self._renamed | self._renumbered(dict.fromkeys(NAME.findall("\n".join(lines))))
        return [NAME.sub(lambda match: names.get(match[0], match[0]), line) for line in lines]

    def _renumbered(self, names: Iterable[str]) -> dict[str, str]:
        """New names for locals: the numbers behind equal names without gaps, in the order of the lines."""
        arguments = {*self.pointers, *self.numbers}
        own = [name for name in names if name in self._stems and name not in arguments | set(self._renamed)]
        taken = {*self._renamed.values(), *arguments, *names} - set(own)
        return {name: take_name(self._stems[name], taken) for name in own}

    def remember(self, what: Any, depth: int, make: Callable[[], str]) -> str:
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
            return self._digit(index), ATOM
        if isinstance(index, Text):
            return index.text, index.binds
        if isinstance(index, Joined):
            high, size, low = index.high, self._extent(index), self.index(index.low)
            text = f"{wrapped(self.index(high), PRODUCT)} * {size}"
            return (text, PRODUCT) if is_zero(index.low) else (f"{text} + {wrapped(low, SUM)}", SUM)
        if isinstance(index, Part):
            return self._part(index)
        return self.size(index), ATOM

    def _part(self, part: Part) -> tuple[str, int]:
        text, binds = self.index(part.whole)
        inner = product(part.sizes[part.last + 1 :])
        if not is_one(inner):
            text, binds = f"{wrapped((text, binds), PRODUCT)} // {atom(self._named(inner))}", PRODUCT
        if not all(map(is_one, part.sizes[: part.first])):
            size = self._named(product(part.sizes[part.first : part.last + 1]))
            text, binds = f"{wrapped((text, binds), PRODUCT)} % {atom(size)}", PRODUCT
        return text, binds

    def _extent(self, index: Joined) -> str:
        """Argument of an axis' size: that of the group which walks along the whole axis, if there is one."""
        low = index.low
        if isinstance(low, Digit) and low.group.extent and len(low.group.sizes) == low.last - low.first + 1:
            return low.group.extent
        return self._named(index.size)

    def _named(self, size: int) -> str:
        return self.size(size, self._letters.get(canonical(size), ""))

    def name_sizes(self, groups: Sequence[Group]) -> None:
        """Let the sizes of groups have the letters of their axes."""
        self._letters = {}
        self._taken |= {group.name for group in groups} | {"start", "carry", "running"}
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
            inner, size = product(group.sizes[digit.last + 1 :]), ""
            divisor = "" if is_one(inner) else self._named(inner)
            text = f"{group.name} // {divisor}" if divisor else group.name
            if digit.first > first:
                size = self._named(digit.size)
                text += f" % {size}"
            name = self.fresh("".join(group.letters[digit.first : digit.last + 1]).lower(), group.depth)
            self.line(f"{name} = {text}", group.depth)
            self._splits.setdefault(group.name, []).append((name, divisor, size))
            return name

        return self.remember(("digit", digit), group.depth, make) + group.view

    def name_roles(self) -> None:
        """Name an index that is split at one place by its role, which is the same for every rank."""
        for group, splits in self._splits.items():
            if group not in _WALKED or len({divisor or size for _, divisor, size in splits}) > 1:
                continue
            is_alone = len(splits) == 1
            for name, divisor, size in splits:
                if "num_groups" in self.numbers.get(size, ""):
                    index, extent = "group", "num_groups"
                elif divisor and size:
                    index, extent = "channel", "channels"
                elif divisor:
                    index, extent = "outer", ""
                else:
                    index, extent = ("channel", "channels") if group in ("row", "rows") else ("col", "n_cols")
                    index, extent = (index, extent) if is_alone else ("offset", "")
                self._rename(name, index)
                self._rename(size, extent)
                self._rename(divisor, "inner")

    def _rename(self, name: str, wanted: str) -> None:
        if (
            not wanted
            or not IDENTIFIER.fullmatch(name)
            or name in self.totals
            or wanted in self._used | self._taken
        ):
            return
        self._used.add(wanted)
        self._renamed[name] = wanted
        self.numbers = {wanted if key == name else key: text for key, text in self.numbers.items()}
        self.sizes = {wanted if key == name else key: size for key, size in self.sizes.items()}

    def condition(self, text: str, index: Index) -> Text:
        """A condition on an index; `{}` is the index."""
        written = self.index(index)
        return Text(text.format(wrapped(written, SUM)), groups_of(index))

    @contextmanager
    def guarded(self, *conditions: Text) -> Iterator[None]:
        """Loads only where the conditions hold."""
        self._guards.extend(conditions)
        yield
        del self._guards[len(self._guards) - len(conditions) :]

    def mask(self, indices: Sequence[Index], tensor: str) -> str:
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
        depth = max(group.depth for group in groups)
        parts = list(dict.fromkeys([group.mask for group in groups if group.mask] + guards))
        for named, name in self._masks.items():
            if named <= set(parts):
                parts = [name, *(part for part in parts if part not in named)]
        text = _all_of(parts)
        if len(parts) < 2:
            return text
        return self.remember(("mask", text), depth, lambda: self.own_name(text, "mask", tensor, depth))

    def joined_mask(self, parts: Sequence[str], name: str) -> str:
        """Text of several conditions; a line of the schedule gives it a name that later masks use."""
        self._masks[frozenset(parts)] = name
        return _all_of(parts)


def _all_of(conditions: Sequence[str]) -> str:
    if len(conditions) == 1:
        return conditions[0]
    return " & ".join(part if _VIEWED.fullmatch(part) else f"({part})" for part in conditions)


def wrapped(written: tuple[str, int], least: int) -> str:
    """Return a text in parentheses where it binds less tightly than `least`."""
    return f"({written[0]})" if written[1] < least else written[0]


def atom(text: str) -> str:
    """Return a text in parentheses unless it is a name."""
    return text if IDENTIFIER.fullmatch(text) else f"({text})"
