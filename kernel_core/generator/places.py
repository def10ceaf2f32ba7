"""Indices of a kernel as text, with the conditions under which they are inside."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kernel_core.generator.index import Digit, Group, Index, Joined, Part, Text, groups_of, is_zero, letters
from kernel_core.generator.names import canonical, take_name
from kernel_core.generator.sizes import is_one, product
from kernel_core.generator.text import IDENTIFIER, NAME, KernelText, spans

ATOM, PRODUCT, SUM, LOOSE = 4, 3, 2, 1
_VIEWED = re.compile(r"\w+(\[[:, None]+\])?")
_COUNTS = ("n_elements", "n_rows", "n_cols")
"""Counts in the order that launches give them."""
_LARGEST = 2**31
_WALKED = ("i", "row", "rows", "cols")
"""Groups that walk over elements or rows."""


class KernelPlaces(KernelText):
    """A kernel text with indices and masks."""

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
        self.name_axes(part.sizes, letters(len(part.sizes)), is_stored=False)
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
        self._letters, self._shapes, self._stored = {}, {}, {}
        self._taken |= {group.name for group in groups} | {"start", "carry", "running"}
        for group in groups:
            self.name_axes(group.sizes, group.letters)

    def name_axes(self, shape: Sequence[int], names: Sequence[str], is_stored: bool = True) -> None:
        """Let the sizes of a tensor, and products of neighbours, have these names where they have none."""
        key = tuple(map(canonical, shape))
        if is_stored:
            self._stored.setdefault(key)
        if key in self._shapes:
            return
        self._shapes[key] = tuple(shape)
        for first, last in spans(shape):
            size = product(shape[first : last + 1])
            self._letters.setdefault(canonical(size), "".join(names[first : last + 1]))

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
            sizes = {divisor or size for _, divisor, size in splits}
            if group not in _WALKED or len(sizes) > 1 or sizes & set(self.products):
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

    def take_products_apart(self) -> None:
        """Write products of neighbouring axes with the sizes that they consist of, where these are arguments.

        A product that no other size of the kernel divides stays one argument.
        """
        read = {word for line in self.raw_lines() for word in NAME.findall(line)}
        while apart := self._next_product(read):
            name, parts = apart
            self.products[name] = [self._named(part) for part in parts]
            read |= set(self.products[name])

    def name_products(self) -> None:
        """Name products of axes that stayed one argument: up to the last axis, from the first, others."""
        read = {word for line in self.raw_lines() for word in NAME.findall(line)}
        read = read.union(*self.products.values()) - set(self.products)
        shapes = [*self._shapes.values()]
        for wanted, shape in [
            *((wanted, shape) for shape in shapes for wanted in ("inner", "n_outer")),
            *(("middle", shape) for shape in shapes),
        ]:
            own = spans(shape)
            for first, last in own:
                name = self._arguments.get(canonical(product(shape[first : last + 1])), "")
                is_there = {"inner": last == own[-1][1], "n_outer": first == own[0][0], "middle": True}
                if first < last and is_there[wanted] and name in read - set(self._renamed):
                    self._rename(name, take_name(wanted, self._used | self._taken))

    def _next_product(self, read: set[str]) -> tuple[str, list[int]] | None:
        """Return an argument that is a product of axes, with the sizes at which others cut it."""
        for shape in self._shapes.values():
            own = {span: canonical(product(shape[span[0] : span[1] + 1])) for span in spans(shape)}
            used = {span: self._arguments.get(text, "") for span, text in own.items()}
            used = {span: name for span, name in used.items() if name in read and name not in self.products}
            cuts = {first for first, _ in used} | {last + 1 for _, last in used}
            for (first, last), name in used.items():
                places = [first, *(cut for cut in sorted(cuts) if first < cut <= last), last + 1]
                parts = [product(shape[a:b]) for a, b in itertools.pairwise(places)]
                is_small = int(product(parts)) < _LARGEST  # a kernel multiplies sizes as int32
                if len(places) > 2 and name not in self.totals and is_small:
                    return name, [part for part in parts if not is_one(part)]
        return None

    def ordered_numbers(self) -> dict[str, str]:
        """Arguments that are numbers: counts, sizes in the order of a shape's axes, other sizes, and scalars.

        Shapes of a higher rank, and of tensors in memory, come first. The geometry of a convolution has its
        own order.
        """
        shapes = sorted(
            [*self._stored, *(key for key in self._shapes if key not in self._stored)], key=len, reverse=True
        )
        texts = [text for shape in shapes for text in shape]
        starts = {
            canonical(product(self._shapes[shape][first : last + 1])): texts.index(shape[first])
            for shape in reversed(shapes)
            for first, last in spans(self._shapes[shape])
        }

        def place(name: str) -> tuple[int, int]:
            if name in self.totals:
                return 0, _COUNTS.index(name) if name in _COUNTS else len(_COUNTS)
            if name not in self.sizes:
                return 3, 0
            start = None if self.keeps_order else starts.get(canonical(self.sizes[name]))
            return (2, 0) if start is None else (1, start)

        return {name: self.numbers[name] for name in sorted(self.numbers, key=place)}

    def _rename(self, name: str, wanted: str) -> None:
        if (
            not wanted
            or not IDENTIFIER.fullmatch(name)
            or name in self.totals
            or wanted in self._used | self._taken
        ):
            return
        self._used.add(wanted)
        self._replace(name, wanted)
        second = next((other for other in self.numbers if re.fullmatch(rf"{name}\d+", other)), "")
        if second:  # the first of two equal names is free
            self._replace(second, name)

    def _replace(self, name: str, wanted: str) -> None:
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
