"""Numbers that keep the host expression they came from, such as `x.shape[0] * self.stride`.

A module is read by running its `forward` once. Shapes and attributes are `Size` and `Number` there, so
Python's own arithmetic writes the expression, and the kernel that is generated holds for any size.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

ATOM, PRODUCT, SUM = 3, 2, 1
_NAMED = re.compile(r"(?<!\d)[A-Za-z_]")
"""Start of a name in an expression; an exponent is none."""
_SIGNED = re.compile(r"-[\w.]+")
_COMPUTE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "/": operator.truediv, "**": operator.pow,
}  # fmt: skip


def _operation(sign: str, is_reflected: bool = False) -> Any:
    if is_reflected:
        return lambda self, other: _joined(other, sign, self)
    return lambda self, other: _joined(self, sign, other)


class _Expression:
    """Text of a number, and arithmetic that writes it."""

    text: str
    binds: int

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return self.text

    __add__, __radd__ = _operation("+"), _operation("+", is_reflected=True)
    __sub__, __rsub__ = _operation("-"), _operation("-", is_reflected=True)
    __mul__, __rmul__ = _operation("*"), _operation("*", is_reflected=True)
    __floordiv__, __rfloordiv__ = _operation("//"), _operation("//", is_reflected=True)
    __truediv__, __rtruediv__ = _operation("/"), _operation("/", is_reflected=True)
    __mod__ = _operation("%")
    __pow__, __rpow__ = _operation("**"), _operation("**", is_reflected=True)

    def __neg__(self) -> Any:
        return _of_kind(-without_text(self), f"-{_wrapped(self, ATOM)}", SUM)

    def __abs__(self) -> Any:
        return _of_kind(abs(without_text(self)), f"abs({self.text})", ATOM)


@dataclass(frozen=True, order=True)
class Run:
    """Neighbouring dimensions of a tensor; their product is a factor of a size."""

    tensor: str
    rank: int
    first: int
    last: int

    @property
    def text(self) -> str:
        """Host text of the product, which names no dimension outside the run."""
        if self.first == self.last:
            return f"{self.tensor}.shape[{-1 if self.last == self.rank - 1 else self.first}]"
        if self.last == self.rank - 1:
            return f"{self.tensor}{f'.shape[{self.first}:]' if self.first else ''}.numel()"
        if not self.first and self.last == self.rank - 2:
            return f"{self.tensor}.numel() // {self.tensor}.shape[-1]"
        return f"{self.tensor}.shape[{self.first or ''}:{self.last + 1}].numel()"

    @property
    def flat_text(self) -> str:
        """Host text that holds for a tensor of any rank: all elements, or all but the last dimension."""
        if self.first == 0 and self.last == self.rank - 1:
            return f"{self.tensor}.numel()"
        if self.first == 0 and self.last == self.rank - 2:
            return f"{self.tensor}.numel() // {self.tensor}.shape[-1]"
        return self.text


Factor = Any
"""A `Run`, a number, or a size that is no product of those."""


class Size(_Expression, int):
    """A whole number with its host expression."""

    factors: tuple[Factor, ...]
    """Sizes whose product it is."""
    offset: tuple[Any, int]
    """A size and the literal that is added to it."""

    def __new__(
        cls, value: int, text: str, binds: int = ATOM, factors: tuple[Factor, ...] | None = None
    ) -> Size:
        self = int.__new__(cls, value)
        self.text, self.binds = text, binds
        self.factors = (self,) if factors is None else factors
        self.offset = (self, 0)
        return self


class Number(_Expression, float):
    """A floating-point number with its host expression."""

    def __new__(cls, value: float, text: str, binds: int = ATOM) -> Number:
        self = float.__new__(cls, value)
        self.text, self.binds = text, binds
        return self


def is_named(value: Any) -> bool:
    """True for a number whose expression has a name, False for a literal and for `1 - 0.8`."""
    return isinstance(value, Size | Number) and _NAMED.search(value.text) is not None


def host(value: Any) -> str:
    """Host text of a number, a literal or a nest of them."""
    if isinstance(value, float) and not isinstance(value, Number) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, tuple):
        return f"({', '.join(map(host, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(host, value))}]"
    return str(value) if not isinstance(value, str) else repr(value)


def run_of(size: Any) -> Run | None:
    """Dimensions of one tensor whose product a size is; None for any other size."""
    factors = size.factors if isinstance(size, Size) else ()
    return factors[0] if len(factors) == 1 and isinstance(factors[0], Run) else None


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


def of_axis(size: int) -> int:
    """Return the size of an axis with a text, so that a kernel takes it as an argument; 0 and 1 stay."""
    return Size(size, str(size)) if type(size) is int and size > 1 else size


def is_one(size: int) -> bool:
    """True for the literal 1: a named size may be 1 by chance."""
    return int(size) == 1 and not is_named(size)


def ceil_div(size: int, by: int) -> Size:
    """Blocks of `by` that cover `size`, as a host expression."""
    return Size(-(-int(size) // int(by)), f"triton.cdiv({host(size)}, {host(by)})", PRODUCT)


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
    if isinstance(left, int) and isinstance(right, int):
        if sign == "*" and any(not is_named(factor) and factor == 0 for factor in (left, right)):
            return 0
        if sign == "*":
            return _multiplied([*_factors(left), *_factors(right)], int(left) * int(right))
        if sign == "//" and (rest := _cancelled(left, right)) is not None:
            return _multiplied(rest, int(left) // int(right))
        if sign in "+-" and isinstance(left, Size) and type(right) is int:
            base, before = left.offset
            return _shifted(base, before + (right if sign == "+" else -right))
    binds = SUM if sign in "+-" else PRODUCT
    if sign == "**":
        text = f"{_wrapped(left, ATOM)} ** {_wrapped(right, SUM if _SIGNED.fullmatch(host(right)) else ATOM)}"
    else:
        text = f"{_wrapped(left, binds)} {sign} {_wrapped(right, binds + (sign not in '+*'))}"
    return _of_kind(_COMPUTE[sign](without_text(left), without_text(right)), text, binds)


def _of_kind(value: Any, text: str, binds: int) -> Any:
    return Size(value, text, binds) if isinstance(value, int) else Number(value, text, binds)


def _shifted(size: Size, by: int) -> Size:
    """A size with a literal added, which joins the literal that was added before."""
    if by == 0:
        return size
    shifted = Size(int(size) + by, f"{_wrapped(size, SUM)} {'-' if by < 0 else '+'} {abs(by)}", SUM)
    shifted.offset = (size, by)
    return shifted


def _factors(size: int) -> tuple[Factor, ...]:
    return size.factors if isinstance(size, Size) else (size,)


def _multiplied(factors: Sequence[Factor], value: int) -> int:
    """A product whose neighbouring dimensions of one tensor are one factor."""
    merged: list[Factor] = []
    for factor in factors:
        if isinstance(factor, Run):
            own = [other for other in merged if isinstance(other, Run) and other.tensor == factor.tensor]
            at = merged.index(own[0]) if own else len(merged)
            merged = [other for other in merged if other not in own]
            merged[at:at] = _neighbours_joined([*own, factor])
        elif not (type(factor) is int and factor == 1):
            merged.append(factor)
    if not merged:
        return 1
    texts = [
        (f"({text})" if "//" in text and place else text)
        if isinstance(factor, Run)
        else _wrapped(factor, ATOM if "//" in text and place else PRODUCT)
        for place, factor in enumerate(merged)
        for text in [factor.text if isinstance(factor, Run) else host(factor)]
    ]
    if len(merged) == 1:
        only = merged[0]
        if not isinstance(only, Run):
            return int(only) if not isinstance(only, Size) else only
        return Size(value, only.text, PRODUCT if "//" in only.text else ATOM, (only,))
    return Size(value, " * ".join(texts), PRODUCT, tuple(merged))


def _neighbours_joined(runs: Sequence[Run]) -> list[Run]:
    result: list[Run] = []
    for run in sorted(runs):
        if result and result[-1].last + 1 == run.first:
            run = Run(run.tensor, run.rank, result.pop().first, run.last)
        result.append(run)
    return result


def single_dimensions(size: int) -> list[Factor]:
    """Return the factors of a size with each run taken apart."""
    return [
        part for factor in _factors(size) for part in (
            [
                Run(factor.tensor, factor.rank, axis, axis) for axis in range(factor.first, factor.last + 1)
            ] if isinstance(factor, Run) else [factor]
        )
    ]  # fmt: skip


def as_size(factor: Factor) -> int:
    """Return a factor as a size, for its text."""
    binds = PRODUCT if isinstance(factor, Run) and "//" in factor.text else ATOM
    return Size(1, factor.text, binds, (factor,)) if isinstance(factor, Run) else factor


def _cancelled(size: int, by: int) -> list[Factor] | None:
    """Factors of `size` without those of `by`; None where `by` has another one."""
    left = single_dimensions(size)
    for factor in single_dimensions(by):
        match = [
            k for k, other in enumerate(left) if type(other) is type(factor) and str(other) == str(factor)
        ]
        if not match or not is_named(by):
            return None
        left.pop(match[0])
    return left


def _wrapped(value: Any, least: int) -> str:
    is_loose = value.binds < least if isinstance(value, Size | Number) else value < 0 and least > SUM
    return f"({host(value)})" if is_loose else host(value)


def without_text(value: Any) -> Any:
    """Return a number, or a slice of them, without texts: torch does not take subclasses everywhere."""
    if isinstance(value, Size):
        return int(value)
    if isinstance(value, Number):
        return float(value)
    if isinstance(value, slice):
        return slice(without_text(value.start), without_text(value.stop), without_text(value.step))
    return value
