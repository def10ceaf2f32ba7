"""Rows of a tensor as a program walks along them: its tile, its blocks, and values beyond a row's end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kernel_core.generator.index import Group, Index, letters
from kernel_core.generator.ir import Value, is_point, stored
from kernel_core.generator.schedules.written import Context, Written, power_of_two
from kernel_core.generator.sizes import is_one, product

ONE_TILE, SHORT, TILE = 8192, 512, 4096
"""Longest row that is loaded whole; longest of which a program takes several; elements of a tile."""
MULTIPLY = """@triton.jit
def multiply(a, b):
    return a * b
"""
LOWEST = 'float("-inf")'
_NEUTRAL = ("sum", "prod", "amax", "amin", "argmax", "argmin")
"""Reductions of numbers, whose neutral number a load can have."""
_KEEP_ZERO = ("abs", "mul", "neg", "square", "relu", "sqrt", "add_", "sub_")
"""Pointwise operators whose result is 0 where all operands are."""


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
        self.edges: dict[int, str] = {}
        """Numbers that computed values were given beyond the row's end."""
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

    def finish(self, plan: str, helpers: dict[str, str]) -> Written:
        """The text of the kernel, with a warp for each 512 elements of a large tile."""
        length = power_of_two(int(product(self.shape.walked.sizes)))
        sizes = [int(text) for text in self.shape.constants.values() if text.isdigit()]
        elements = math.prod(sizes) * (1 if self.shape.is_looped else length)
        return self.context.finish(
            self.kernel, self.shape.constants, self.grid, plan, helpers=helpers, warps=max(4, elements // 512)
        )

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
            if kind in _NEUTRAL and x.dtype.is_floating_point and self.kernel.in_memory(stored(x)):
                self.kernel.fills.setdefault(id(stored(x)), identity(kind, x.dtype))

    def element(self, x: Value, coords: list[Index], neutral: str, kind: str) -> str:
        """Return the element to be reduced, neutral beyond the row's end."""
        name = self.kernel.at(x, coords)
        if kind in ("any", "all"):
            name = f"{name}.to(tl.int32)"
        elif self._edge(x) == neutral:
            return name
        elif x.dtype is torch.int64 and kind != "sum" and not self.kernel.in_memory(x):
            name = f"{name}.to(tl.int64)"  # an index is an int32, which does not hold the neutral number
        masked = self.kernel.named(
            "inside", f"tl.where({self.inside()}, {name}, {neutral})", self.kernel.depth
        )
        if kind == "amax" and x.dtype.is_floating_point and not self.kernel.in_memory(x):
            self.kernel.replace(x, coords, masked)
            self.edges[id(x)] = neutral
        return masked

    def _edge(self, x: Value) -> str:
        """Return what a value is beyond the row's end, empty where that is not known."""
        is_whole = x.rank == len(self.domain) and list(map(int, x.shape)) == list(map(int, self.domain))
        if not x.dtype.is_floating_point or not is_whole:
            return ""
        if id(x) in self.edges or self.kernel.in_memory(stored(x)):
            return self.edges.get(id(x)) or self.kernel.fills.get(id(stored(x)), "0.0")
        if x.op != "point":
            return ""
        if x.entry.name in _KEEP_ZERO:
            is_zero = all(isinstance(given, Value) and self._edge(given) == "0.0" for given in x.inputs)
            return "0.0" if is_zero else ""
        if not is_point(x, "exp") or not is_point(x.inputs[0], "sub_"):
            return ""
        raised, top = x.inputs[0].inputs
        is_top = isinstance(top, Value) and (top.op, getattr(top, "kind", "")) == ("reduce", "amax")
        return "0.0" if is_top and self._edge(raised) == LOWEST else ""


def accumulator(dtype: torch.dtype) -> str:
    """Type in which sums and extremes of a type are kept."""
    if not dtype.is_floating_point:
        return "tl.int64"
    return "tl.float64" if dtype is torch.float64 else "tl.float32"


def filled(tile: str, neutral: str, dtype: str) -> str:
    """Text of a tile of one number."""
    if neutral in ("0.0", "0"):
        return f"tl.zeros({tile}, dtype={dtype})"
    return f"tl.full({tile}, {neutral}, dtype={dtype})"


def identity(kind: str, dtype: torch.dtype) -> str:
    """Number that changes no result."""
    if kind in ("sum", "any"):
        return "0.0" if dtype.is_floating_point else "0"
    if kind in ("prod", "all"):
        return "1.0" if dtype.is_floating_point else "1"
    is_top = kind in ("amin", "argmin")
    if dtype.is_floating_point:
        return 'float("inf")' if is_top else LOWEST
    if dtype is torch.bool:
        return "1" if is_top else "0"
    limits = torch.iinfo(dtype)
    return str(limits.max if is_top else limits.min)
