"""Values of a kernel at an index: loads, pointwise operators, casts and constants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from kernel_core.generator.index import Group, Index, flatten, groups_of, is_zero, key, letters  # fmt: skip
from kernel_core.generator.ir import LAYOUT, Value, in_memory_order, is_point
from kernel_core.generator.places import ATOM, PRODUCT, SUM, KernelPlaces, wrapped
from kernel_core.generator.sizes import Size, is_one, product

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


class KernelValues(KernelPlaces):
    """A kernel text with values that are computed where they are read."""

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
        if value.op in LAYOUT:
            for tensor in value.tensors:
                self.name_axes(tensor.shape, letters(tensor.rank), is_stored=False)
        depth = self._depth(coords)
        make = getattr(self, f"_{value.op}")
        return self.remember(self._what(value, coords), depth, lambda: make(value, coords))

    def _what(self, value: Value, coords: Sequence[Index]) -> Any:
        return "at", id(value), tuple(map(key, coords)), tuple(guard.text for guard in self._guards)

    def replace(self, value: Value, coords: Sequence[Index], name: str) -> None:
        """Let a value have another name from here to the end of the block."""
        self._memo[-1][self._what(value, coords)] = name

    def _require(self, value: Value, coords: Sequence[Index], expected: Sequence[Index]) -> None:
        for axis, (coord, wanted) in enumerate(zip(coords, expected, strict=True)):
            if not is_one(value.shape[axis]) and key(coord) != key(wanted):
                raise Unfusable("a result at another index than its own", value)

    def _depth(self, coords: Sequence[Index]) -> int:
        groups = [group for coord in coords for group in groups_of(coord)]
        groups += [group for guard in self._guards for group in guard.groups]
        return max((group.depth for group in groups), default=0)

    def _load(self, value: Value, coords: Sequence[Index], other: float) -> str:
        own = [0 if is_one(size) else coord for coord, size in zip(coords, value.shape, strict=True)]
        offset = flatten(in_memory_order(own, value), in_memory_order(value.shape, value))
        self.name_axes(value.shape, letters(value.rank))
        return self.load(value, offset, other)

    def load(self, value: Value, offset: Index, other: float = 0.0) -> str:
        """Name of the element of a tensor in memory at an offset from its first one."""
        depth = self._depth([offset])

        def make() -> str:
            pointer, mask = self.pointer(value), self.mask([offset], self._name_of(value))
            text = pointer if is_zero(offset) else f"{pointer} + {self.offset(offset, self._name_of(value))}"
            fill = self.fills.get(id(value), "0.0" if value.dtype.is_floating_point else "0")
            if other:
                fill = self.size(other)
            options = f", mask={mask}, other={fill}" if mask else ""
            cast = ".to(tl.float32)" if value.dtype in HALF else ""
            name = self.fresh(self._name_of(value), depth)
            self.line(f"{name} = tl.load({text}{options}){cast}", depth)
            return name

        return self.remember(
            ("load", id(value), key(offset), tuple(guard.text for guard in self._guards), other), depth, make
        )

    def offset(self, offset: Index, tensor: str) -> str:
        """Text of an offset in memory, which is computed once for all tensors of a shape."""
        text, binds = self.index(offset)
        depth = self._depth([offset])
        if binds == ATOM:
            return text
        return self.remember(("offset", text), depth, lambda: self.own_name(text, "offsets", tensor, depth))

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
        wanted = "out" if id(value) in self.results else _result_name(value)
        name = self.named(wanted, text, depth)
        if wanted in _MOMENTS:
            self.pure.discard(name)
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
            text, binds = f"{wrapped((text, binds), PRODUCT)} * {self.size(step)}", PRODUCT
        if not (isinstance(first, int) and not isinstance(first, Size) and first == 0):
            text, binds = f"{self.size(first)} + {text}", SUM
        return text if binds == ATOM else f"({text})"

    def _groups(self, coords: Sequence[Index]) -> frozenset[Group]:
        return frozenset(group for coord in coords for group in groups_of(coord))


def _result_name(value: Value) -> str:
    """Name of a line's result by its operator; moments have the names that statistics gives them."""
    name = value.entry.name.strip("_") if value.op == "point" else value.op
    if name == "true_divide":
        return _moment(value) or "quotient"
    if name == "sub" and _moment(value.inputs[1]) == "mean":
        return "centered"
    if name == "rsqrt" and is_point(value.inputs[0], "add_") and _moment(value.inputs[0].inputs[0]) == "var":
        return "rstd"
    return _RESULTS.get(name, name)


def _moment(value: Any) -> str:
    """`mean`, `var` or `mean_square` of a sum that is divided by the number of its terms; else empty."""
    value = _without_layout(value)
    total = _without_layout(value.inputs[0]) if is_point(value, "true_divide") else None
    if total is None or total.op != "reduce" or total.kind != "sum":
        return ""
    terms = total.inputs[0]
    terms = terms.inputs[0] if terms.op == "partial" else terms
    if isinstance(value.inputs[1], Value) or int(value.inputs[1]) * product(total.shape) != product(
        terms.shape
    ):
        return ""
    if not is_point(terms, "square"):
        return "mean"
    return "var" if is_point(terms.inputs[0], "sub_") else "mean_square"


def _without_layout(value: Any) -> Any:
    while isinstance(value, Value) and value.op in ("reshape", "expand", "cast"):
        value = value.inputs[0]
    return value if isinstance(value, Value) else None


_MOMENTS = ("mean", "var", "mean_square", "rstd", "centered")
"""Names that a reader looks for, which keep their lines."""
_RESULTS = {
    "add": "total", "sub": "diff", "mul": "scaled", "square": "squared",
    "maximum": "upper", "minimum": "lower", "cast": "value", "where": "chosen", "sqrt": "root",
    "gelu_erf": "gelu", "gelu_tanh": "gelu", "neg": "negated", "exp": "exps", "pad": "padded",
    "cat": "joined", "abs": "size", "log": "logs", "power": "powered", "rsqrt": "inverse",
}  # fmt: skip
