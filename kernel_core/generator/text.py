"""Text of one Triton kernel: names, arguments, and lines at their depth of loops.

A line is written at the depth where the last of its indices is known, so what a loop does not change
stands before it.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kernel_core.generator.index import Group, Index, Text
from kernel_core.generator.ir import Value
from kernel_core.generator.lines import joined
from kernel_core.generator.names import canonical, take_name
from kernel_core.generator.sizes import Number, Size, host, is_named, is_one, run_of

IDENTIFIER = re.compile(r"\w+")
NAME = re.compile(r"(?<![.\w])[A-Za-z_]\w*(?!\w|=(?!=))")
"""A name that is no attribute and no keyword of a call."""


def spans(shape: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last axis of all neighbours in a shape whose first and last size are not 1."""
    axes = [axis for axis, size in enumerate(shape) if not is_one(size)]
    return [(first, last) for first in axes for last in axes if first <= last]


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
        self._shapes: dict[tuple[str, ...], tuple[int, ...]] = {}
        """Shapes whose axes have letters, by their texts."""
        self._stored: dict[tuple[str, ...], None] = {}
        """Those of the result and of tensors in memory, in their order."""
        self.products: dict[str, list[str]] = {}
        """Arguments by which a product of sizes is written."""
        self.keeps_order = False
        """True if numbers are passed in the order of their first use."""
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
        result = take_name(name, self._taken)
        self._used.add(result)
        self._stems[result] = name
        if 0 < depth <= self.depth:
            self._in_loops[depth].append(result)
        return result

    def _argument(self, wanted: str) -> str:
        """A name for an argument, which no line has, not even in a loop that is closed."""
        closed = self._used - self._taken
        self._taken |= closed
        name = self.fresh(wanted)
        self._taken -= closed
        return name

    def size(self, size: Any, name: str = "") -> str:
        """A number in the kernel: a literal, or an argument."""
        if not isinstance(size, Size) and not is_named(size):
            return f"({host(size)})" if isinstance(size, Number) and " " in size.text else host(size)
        text = canonical(size)
        if text in self._arguments:
            return self._arguments[text]
        base, by = size.offset if isinstance(size, Size) else (size, 0)
        if by and not name and text not in self._letters:
            return f"({self.size(base)} {'-' if by < 0 else '+'} {abs(by)})"
        words = [
            word
            for word in re.findall(r"[A-Za-z_]\w*(?![\w.(])", text)
            if word not in ("shape", "numel") and (word != "pi" or " " not in text)
        ]
        plain = text if IDENTIFIER.fullmatch(text) else ""
        named = name or self._letters.get(text, "") or plain
        if ".shape" in text or ".numel" in text:
            run = run_of(size)
            is_whole = run is not None and run.first == 0 and run.last == run.rank - 1
            words = ["numel" if is_whole else "size" if isinstance(size, Size) else "scale"]
        if re.match(r"1(\.0)? - (?!.* [+-] )", text) and words:
            words = [f"one_minus_{'_'.join(words)}"]
        words = words or ["size" if isinstance(size, Size) else "scale"]
        argument = self._argument(named or words[-1])
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
        return self.named(f"{tensor}_{role}" if role in self._taken else role, text, depth)

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

    def raw_lines(self) -> list[str]:
        """All lines with their indentation, before they are joined."""

        def flat(items: list[Any], indent: str) -> Iterator[str]:
            for item in items:
                if isinstance(item, str):
                    yield indent + item
                elif isinstance(item, tuple):
                    yield from flat(item[1], indent + "    ")
                else:
                    yield from flat(item, indent)

        return list(flat(self._body, ""))

    def lines(self) -> list[str]:
        """All lines as an author writes them."""
        lines = joined(self.raw_lines(), self.pure, self.products)
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
