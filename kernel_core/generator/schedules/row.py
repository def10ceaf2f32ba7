"""Row schedule: a program owns one or several results of a reduction and walks along what is reduced.

Operators before the reductions are computed as the row is loaded, those behind them before it is stored. A
row that fits is loaded once; a longer one is walked in blocks, once for each reduction that needs another's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernel_core.generator.fuse import is_point
from kernel_core.generator.index import Group, Index, letters
from kernel_core.generator.ir import Value, walk
from kernel_core.generator.schedules.written import Context, Written, places_of, power_of_two, store_at
from kernel_core.generator.sizes import is_one, product

ONE_TILE, SHORT, TILE = 8192, 512, 4096
"""Longest row that is loaded whole; longest of which a program takes several; elements of a tile."""
MULTIPLY = """@triton.jit
def multiply(a, b):
    return a * b
"""
_LOWEST = 'float("-inf")'
_NEUTRAL = ("sum", "prod", "amax", "amin", "argmax", "argmin")
"""Reductions of numbers, whose neutral number a load can have."""
_FUNCTIONS = {"sum": "tl.sum", "amax": "tl.max", "amin": "tl.min", "any": "tl.max", "all": "tl.min"}


@dataclass
class Shape:
    """Tile over results (`kept`) and the axes that are reduced (`walked`)."""

    kept: Group
    walked: Group
    axis: int
    is_looped: bool
    has_tile: bool
    """True where a program has several results."""
    tile: str
    """Python text of the tile's shape."""
    constants: dict[str, str]

    @property
    def keep(self) -> str:
        """Option of a reduction that keeps the axis."""
        return f"axis={self.axis}, keep_dims=True" if self.has_tile else "axis=0"


def shape_of(domain: tuple[int, ...], dims: tuple[int, ...]) -> Shape:
    """Choose the tile by the problem's own sizes; every choice holds for all sizes."""
    rank = len(domain)
    names = letters(rank)
    axes = [axis for axis in range(rank) if axis not in dims]
    sizes, walked = tuple(domain[axis] for axis in axes), tuple(domain[axis] for axis in dims)
    results, length = product(sizes), product(walked)
    is_inner = any(int(domain[axis]) > 1 and axis > max(dims) for axis in axes)
    is_short = not is_inner and int(length) <= SHORT and int(results) > 1
    limit = 64 if is_inner else ONE_TILE
    is_looped = int(length) > limit
    depth = int(is_looped)
    kept_view, walked_view = ("[None, :]", "[:, None]") if is_inner else ("[:, None]", "[None, :]")
    has_tile = is_inner or is_short
    name = ("cols" if is_inner else "rows") if has_tile else "row"
    kept = Group(
        name, sizes, tuple(names[axis] for axis in axes), kept_view if has_tile else "",
        f"{name}{kept_view} < {{}}" if has_tile else "", 0,
    )  # fmt: skip
    along = "rows" if is_inner else "cols"
    reduced = Group(
        along, walked, tuple(names[axis] for axis in dims), walked_view if has_tile else "",
        f"{along}{walked_view} < {{}}" if has_tile else "mask", depth,
    )  # fmt: skip
    constants = {"BLOCK": str(32 if is_inner else TILE) if is_looped else ""}
    tile = "(BLOCK,)"
    if has_tile:
        other = "COLS" if is_inner else "ROWS"
        number = (
            64 if is_inner else max(1, min(TILE // power_of_two(int(length)), power_of_two(int(results))))
        )
        constants[other] = str(number)
        tile = "(BLOCK, COLS)" if is_inner else "(ROWS, BLOCK)"
    return Shape(kept, reduced, 0 if is_inner else 1, is_looped, has_tile, tile, constants)


class Rows:
    """A kernel over rows that is being written."""

    def __init__(self, context: Context, domain: tuple[int, ...], dims: tuple[int, ...]) -> None:
        self.context, self.domain, self.dims = context, domain, dims
        shape = shape_of(domain, dims)
        kernel = context.kernel([shape.kept, shape.walked])
        results = product(shape.kept.sizes)
        self.length = kernel.total(product(shape.walked.sizes), f"n_{shape.walked.name}")
        object.__setattr__(shape.walked, "mask", shape.walked.mask.format(self.length))
        if not shape.is_looped:
            shape.constants["BLOCK"] = f"triton.next_power_of_2({self.length})"
        name = "n_cols" if shape.kept.name == "cols" else "n_rows"
        count = kernel.total(results, name, is_flat=True, is_argument=shape.has_tile)
        self.grid = f"({count},)"
        if shape.has_tile:
            object.__setattr__(shape.kept, "mask", shape.kept.mask.format(count))
            number = next(value for name, value in shape.constants.items() if name != "BLOCK")
            self.grid = f"(triton.cdiv({count}, {number}),)"
        self.kernel, self.shape = kernel, shape
        if shape.has_tile:
            block = next(name for name in shape.constants if name != "BLOCK")
            kernel.line(
                f"{shape.kept.name} = tl.program_id(0).to(tl.int64) * {block} + tl.arange(0, {block})"
            )
        elif not all(map(is_one, shape.kept.sizes)):
            kernel.line("row = tl.program_id(0).to(tl.int64)")
        if not shape.is_looped:
            self._range("")

    def _range(self, start: str) -> None:
        name = self.shape.walked.name
        self.kernel.line(f"{name} = {start}tl.arange(0, BLOCK)")
        mask = f"{name} < {self.length}"
        if self.shape.has_tile:
            parts = (self.shape.kept.mask, self.shape.walked.mask)
            mask = self.kernel.joined_mask(parts if self.shape.axis else parts[::-1], "mask")
        self.kernel.line(f"mask = {mask}")

    def walk(self) -> Iterator[None]:
        """Blocks of the rows: once where a row fits, else a loop."""
        if not self.shape.is_looped:
            yield
            return
        with self.kernel.loop(f"for start in range(0, {self.length}, BLOCK):"):
            self._range("start + ")
            yield

    def coords(self, is_full: bool) -> list[Index]:
        """Index of an element, or of a result."""
        kept, walked = iter(range(len(self.shape.kept.sizes))), iter(range(len(self.dims)))
        result: list[Index] = []
        for axis in range(len(self.domain)):
            if axis in self.dims:
                place = next(walked)
                result.append(self.shape.walked.digit(place) if is_full else 0)
            else:
                result.append(self.shape.kept.digit(next(kept)))
        return result

    def inside(self) -> str:
        """Condition for lanes that are part of a row."""
        return self.shape.walked.mask

    def fill(self, reduced: Sequence[tuple[Value, str]]) -> None:
        """Load tensors with the number that does not change their first reduction."""
        for x, kind in reduced:
            if kind in _NEUTRAL and x.dtype.is_floating_point and self._is_loaded(x):
                self.kernel.fills.setdefault(id(_unshaped(x)), identity(kind, x.dtype))

    def element(self, x: Value, coords: list[Index], neutral: str, kind: str) -> str:
        """Return the element to be reduced, neutral beyond the row's end."""
        name = self.kernel.at(x, coords)
        if kind in ("any", "all"):
            name = f"{name}.to(tl.int32)"
        elif self._is_neutral(x, neutral):
            return name
        elif x.dtype is torch.int64 and kind != "sum" and not self.kernel.in_memory(x):
            name = f"{name}.to(tl.int64)"  # an index is an int32, which does not hold the neutral number
        line = self.kernel.fresh("inside", self.kernel.depth)
        self.kernel.line(f"{line} = tl.where({self.inside()}, {name}, {neutral})")
        return line

    def _is_neutral(self, x: Value, neutral: str) -> bool:
        """Return True if `x` has the neutral number beyond the row's end without a `tl.where`."""
        if self._is_loaded(x):
            return x.dtype.is_floating_point and self.kernel.fills.get(id(_unshaped(x)), "0.0") == neutral
        shifted = x.inputs[0] if neutral == "0.0" and is_point(x, "exp") else None
        if not is_point(shifted, "sub_"):
            return False
        raised, top = shifted.inputs
        is_top = isinstance(top, Value) and (top.op, getattr(top, "kind", "")) == ("reduce", "amax")
        return is_top and self._is_loaded(raised) and self.kernel.fills.get(id(_unshaped(raised))) == _LOWEST

    def _is_loaded(self, x: Value) -> bool:
        return self.kernel.in_memory(_unshaped(x))


def _unshaped(x: Value) -> Value:
    """Return the value that reshapes are made of."""
    while x.op == "reshape":
        x = x.inputs[0]
    return x


def identity(kind: str, dtype: torch.dtype) -> str:
    """Number that changes no result."""
    if kind in ("sum", "any"):
        return "0.0" if dtype.is_floating_point else "0"
    if kind in ("prod", "all"):
        return "1.0" if dtype.is_floating_point else "1"
    is_top = kind in ("amin", "argmin")
    if dtype.is_floating_point:
        return 'float("inf")' if is_top else _LOWEST
    if dtype is torch.bool:
        return "1" if is_top else "0"
    limits = torch.iinfo(dtype)
    return str(limits.max if is_top else limits.min)


def write(context: Context) -> Written:
    """All reductions of a region over the same axes, with what stands before and behind them."""
    anchor = context.region.anchor
    rows = Rows(context, anchor.inputs[0].shape, anchor.dims)
    kernel, region = rows.kernel, context.region
    helpers: dict[str, str] = {}
    reductions = [value for value in region.core.values() if value.op == "reduce"]
    rows.fill([(value.inputs[0], value.kind) for value in reductions])
    levels = _levels(reductions, region.core)
    for level in sorted(set(levels.values())):
        _reduce_level(rows, [value for value in reductions if levels[id(value)] == level], helpers)

    def place(value: Value) -> tuple[list[Index], list[Index], Any]:
        coords = rows.coords(value.op not in ("reduce", "gather"))
        return coords, coords, value.shape

    places = places_of(kernel, region, anchor, rows.coords(False), place)
    full_size = int(product(rows.domain))
    results = int(product(anchor.shape))
    full = [
        value for value in region.outputs if int(product(value.shape)) == full_size and full_size != results
    ]
    for value in region.outputs:
        if value not in full:
            store_at(kernel, value, places[id(value)])
    if full:
        for _ in rows.walk():
            for value in full:
                store_at(kernel, value, places[id(value)])
    return context.finish(
        kernel,
        rows.shape.constants,
        rows.grid,
        _plan(rows, len(set(levels.values())), bool(full)),
        helpers=helpers,
    )


def _plan(rows: Rows, passes: int, stores: bool) -> str:
    along = "column" if rows.shape.axis == 0 else "row"
    what = f"a block of {along}s" if rows.shape.has_tile else f"one {along}"
    if not rows.shape.is_looped:
        return f"Each program loads {what} once and reduces in registers."
    turns = passes + stores
    return f"Each program reduces {what} in blocks, {turns} pass{'es' * (turns > 1)}."


def _levels(reductions: list[Value], core: dict[int, Value]) -> dict[int, int]:
    levels: dict[int, int] = {}
    depth: dict[int, int] = {}
    for value in walk(tuple(reductions)):
        below = max((depth[id(tensor)] for tensor in value.tensors), default=0)
        depth[id(value)] = below + (value.op == "reduce" and id(value) in core)
        if value.op == "reduce" and id(value) in core:
            levels[id(value)] = depth[id(value)]
    return levels


def _reduce_level(rows: Rows, reductions: list[Value], helpers: dict[str, str]) -> None:
    kernel = rows.kernel
    names = [kernel.fresh(_name(value)) for value in reductions]
    coords = rows.coords(True)
    if not rows.shape.is_looped:
        for value, name in zip(reductions, names, strict=True):
            x = _element(rows, value, coords)
            kernel.line(f"{name} = {_final(rows, value, x, helpers)}")
    else:
        running = [_begin(rows, value, name) for value, name in zip(reductions, names, strict=True)]
        for _ in rows.walk():
            for value, name in zip(reductions, running, strict=True):
                _step(rows, value, name, _element(rows, value, coords))
        for value, name, last in zip(reductions, names, running, strict=True):
            kernel.line(f"{name} = {_end(rows, value, last, helpers)}")
    for value, name in zip(reductions, names, strict=True):
        kernel.done[id(value)] = (name, frozenset([rows.shape.kept]), tuple(rows.coords(False)))


def _name(value: Value) -> str:
    return {"sum": "total", "amax": "top", "amin": "bottom", "any": "some", "prod": "whole"}.get(
        value.kind, value.kind
    )


def _element(rows: Rows, value: Value, coords: list[Index]) -> str:
    """Return the element to be reduced, neutral beyond the row's end."""
    kind_dtype = torch.int32 if value.kind in ("any", "all") else value.inputs[0].dtype
    neutral = {"any": "0", "all": "1"}.get(value.kind) or identity(value.kind, kind_dtype)
    return rows.element(value.inputs[0], coords, neutral, value.kind)


def _final(rows: Rows, value: Value, x: str, helpers: dict[str, str]) -> str:
    keep = rows.shape.keep
    if value.kind == "prod":
        helpers["multiply"] = MULTIPLY
        axis, keep_dims = (rows.shape.axis, ", keep_dims=True") if rows.shape.has_tile else (0, "")
        return f"tl.reduce({x}, {axis}, multiply{keep_dims})"
    if value.kind in ("argmax", "argmin"):
        return f"tl.{value.kind}({x}, {keep}).to(tl.int64)"
    text = f"{_FUNCTIONS[value.kind]}({x}, {keep})"
    return f"{text} != 0" if value.dtype is torch.bool else text


def _begin(rows: Rows, value: Value, name: str) -> str:
    kernel, tile = rows.kernel, rows.shape.tile
    x = value.inputs[0].dtype
    kind = (
        "tl.float32"
        if x.is_floating_point and x is not torch.float64
        else "tl.float64"
        if x is torch.float64
        else "tl.int64"
    )
    if value.kind in ("any", "all"):
        kind = "tl.int32"
    neutral = {"any": "0", "all": "1"}.get(value.kind) or identity(value.kind, x)
    running = kernel.fresh("acc" if value.kind == "sum" else "best")
    zero = neutral in ("0.0", "0")
    made = f"tl.zeros({tile}, dtype={kind})" if zero else f"tl.full({tile}, {neutral}, dtype={kind})"
    kernel.line(f"{running} = {made}")
    if value.kind in ("argmax", "argmin"):
        kernel.line(f"{running}_at = tl.zeros({tile}, dtype=tl.int64)")
    return running


def _step(rows: Rows, value: Value, running: str, x: str) -> None:
    kernel = rows.kernel
    if value.kind == "sum":
        kernel.line(f"{running} += {x}")
    elif value.kind == "prod":
        kernel.line(f"{running} *= {x}")
    elif value.kind in ("amax", "any", "amin", "all"):
        kernel.line(
            f"{running} = tl.{'maximum' if value.kind in ('amax', 'any') else 'minimum'}({running}, {x})"
        )
    else:
        sign = ">" if value.kind == "argmax" else "<"
        walked = rows.shape.walked
        kernel.line(f"better = {x} {sign} {running}")
        kernel.line(f"{running}_at = tl.where(better, {walked.name}{walked.view}, {running}_at)")
        kernel.line(f"{running} = tl.where(better, {x}, {running})")


def _end(rows: Rows, value: Value, running: str, helpers: dict[str, str]) -> str:
    if value.kind not in ("argmax", "argmin"):
        return _final(rows, value, running, helpers)
    kernel, keep = rows.kernel, (rows.shape.keep if rows.shape.has_tile else "axis=0, keep_dims=True")
    function = "tl.max" if value.kind == "argmax" else "tl.min"
    kernel.line(f"{running}_all = {function}({running}, {keep})")
    first = f"tl.where({running} == {running}_all, {running}_at, {rows.length})"
    return f"tl.min({first}, {rows.shape.keep}).to(tl.int64)"


__all__ = ["Rows", "identity", "is_one", "write"]
