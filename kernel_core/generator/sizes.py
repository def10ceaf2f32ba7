"""Numbers that keep the host expression they came from, such as `x.shape[0] * self.stride`.

A module is read by running its `forward` once. Shapes and attributes are `Size` and `Number` there, so
Python's own arithmetic writes the expression, and the kernel that is generated holds for any size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

_ATOM, _PRODUCT, _SUM = 3, 2, 1


class _Expression:
    """Text of a number, and arithmetic that writes it."""

    text: str
    binds: int

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return self.text

    def __add__(self, other: Any) -> Any:
        return _joined(self, "+", other)

    def __radd__(self, other: Any) -> Any:
        return _joined(other, "+", self)

    def __sub__(self, other: Any) -> Any:
        return _joined(self, "-", other)

    def __rsub__(self, other: Any) -> Any:
        return _joined(other, "-", self)

    def __mul__(self, other: Any) -> Any:
        return _joined(self, "*", other)

    def __rmul__(self, other: Any) -> Any:
        return _joined(other, "*", self)

    def __floordiv__(self, other: Any) -> Any:
        return _joined(self, "//", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _joined(other, "//", self)

    def __mod__(self, other: Any) -> Any:
        return _joined(self, "%", other)

    def __truediv__(self, other: Any) -> Any:
        return _joined(self, "/", other)

    def __rtruediv__(self, other: Any) -> Any:
        return _joined(other, "/", self)


class Size(_Expression, int):
    """A whole number with its host expression."""

    def __new__(cls, value: int, text: str, binds: int = _ATOM) -> Size:
        self = int.__new__(cls, value)
        self.text, self.binds = text, binds
        return self

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        return Number(int(self) ** other, f"{_wrapped(self, _ATOM)} ** {_wrapped(other, _ATOM)}", _PRODUCT)

    def __neg__(self) -> Size:
        return Size(-int(self), f"-{_wrapped(self, _ATOM)}", _SUM)


class Number(_Expression, float):
    """A floating-point number with its host expression."""

    def __new__(cls, value: float, text: str, binds: int = _ATOM) -> Number:
        self = float.__new__(cls, value)
        self.text, self.binds = text, binds
        return self

    def __neg__(self) -> Number:
        return Number(-float(self), f"-{_wrapped(self, _ATOM)}", _SUM)


class Names:
    """Local names of the host code for sizes that are more than a name."""

    def __init__(self) -> None:
        self.definitions: dict[str, str] = {}
        """Expressions by name, each made of names before it."""
        self.taken: set[str] = set()
        self.equal: dict[str, str] = {}
        """Expressions of sizes that an operator needs to be equal, such as K of both factors."""

    def fresh(self, wanted: str) -> str:
        """A name that nothing has yet."""
        name, number = wanted, 2
        while name in self.taken:
            name, number = f"{wanted}{number}", number + 1
        self.taken.add(name)
        return name

    def bind(self, size: int, wanted: str) -> int:
        """The size under a name of its own; names and literals stay."""
        if not isinstance(size, Size) or size.binds == _ATOM:
            return size
        for name, text in self.definitions.items():
            if text == size.text:
                return Size(int(size), name)
        name = self.fresh(wanted)
        self.definitions[name] = size.text
        return Size(int(size), name)


NAMES: ContextVar[Names] = ContextVar("NAMES")
"""Names of the module that is being read or answered."""


def bind(size: int, wanted: str) -> int:
    """The size under a local name of the host code, where a module is being read."""
    names = NAMES.get(None)
    return size if names is None else names.bind(size, wanted)


def unify(size: int, other: int) -> None:
    """Say that two sizes are equal for every input that the module takes."""
    names = NAMES.get(None)
    if names is not None and is_named(size) and is_named(other) and canonical(size) != canonical(other):
        names.equal[canonical(other)] = canonical(size)


def canonical(size: Any) -> str:
    """Host text of a size, the same for sizes that are equal."""
    names, text = NAMES.get(None), host(size)
    while names is not None and text in names.equal:
        text = names.equal[text]
    return text


def is_named(value: Any) -> bool:
    """True for a number with an expression, False for a literal."""
    return isinstance(value, Size | Number)


def host(value: Any) -> str:
    """Host text of a number, a literal or a nest of them."""
    if isinstance(value, float) and not isinstance(value, Number) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, tuple):
        return f"({', '.join(map(host, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(host, value))}]"
    return str(value) if not isinstance(value, str) else repr(value)


def product(sizes: Iterable[int]) -> int:
    """Product that keeps expressions; 1 of none."""
    result: int = 1
    for size in sizes:
        result = result * size
    return result


def same(size: int, other: int) -> bool:
    """True if two sizes have the same expression, or are equal where one of them is a literal."""
    if int(size) != int(other):
        return False
    return not (is_named(size) and is_named(other)) or host(size) == host(other)


def is_one(size: int) -> bool:
    """True for the literal 1: a named size may be 1 by chance."""
    return int(size) == 1 and not is_named(size)


def ceil_div(size: int, by: int) -> Size:
    """Blocks of `by` that cover `size`, as a host expression."""
    return Size(-(-int(size) // int(by)), f"triton.cdiv({host(size)}, {host(by)})", _PRODUCT)


def root(value: float, function: str = "sqrt") -> float:
    """`math.sqrt` and its like, with the expression kept."""
    result: float = getattr(math, function)(float(value))
    return Number(result, f"math.{function}({host(value)})") if is_named(value) else result


def _joined(left: Any, sign: str, right: Any) -> Any:
    """An operation on two numbers, simplified where one is 0 or 1."""
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return NotImplemented
    neutral = {"+": 0, "-": 0, "*": 1, "//": 1, "/": 1}.get(sign)
    is_whole = isinstance(left, int) and isinstance(right, int)
    if neutral is not None and not is_named(right) and right == neutral and (is_whole and sign != "/"):
        return left
    if sign in "+*" and not is_named(left) and left == neutral and is_whole:
        return right
    if sign == "//" and is_named(left) and is_named(right) and host(left) == host(right):
        return 1
    binds = _SUM if sign in "+-" else _PRODUCT
    text = f"{_wrapped(left, binds)} {sign} {_wrapped(right, binds + (sign not in '+*'))}"
    a = int(left) if isinstance(left, int) else float(left)
    b = int(right) if isinstance(right, int) else float(right)
    value = {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b,
        "//": lambda: a // b, "%": lambda: a % b, "/": lambda: a / b,
    }[sign]()  # fmt: skip
    return Size(value, text, binds) if isinstance(value, int) else Number(value, text, binds)


def _wrapped(value: Any, least: int) -> str:
    is_loose = value.binds < least if is_named(value) else value < 0
    return f"({host(value)})" if is_loose else host(value)


class Shape(tuple[int, ...]):
    """Sizes with texts, with the methods of `torch.Size`."""

    def numel(self) -> int:
        """Return the product of the sizes."""
        return product(self)

    def __getitem__(self, key: Any) -> Any:
        part = tuple.__getitem__(self, key)
        return Shape(part) if isinstance(key, slice) else part


def without_text(value: Any) -> Any:
    """Return a number, or a slice of them, without texts: torch does not take subclasses everywhere."""
    if isinstance(value, Size):
        return int(value)
    if isinstance(value, Number):
        return float(value)
    if isinstance(value, slice):
        return slice(without_text(value.start), without_text(value.stop), without_text(value.step))
    return value
