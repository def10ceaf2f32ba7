"""A kernel with its launch, as text, and what all schedules need to write one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_core.generator.fuse import Region
from kernel_core.generator.index import Group, Index, flatten, is_zero
from kernel_core.generator.ir import CHEAP, Value, in_memory_order, is_channels_last
from kernel_core.generator.kernel import Kernel
from kernel_core.generator.lines import folded
from kernel_core.generator.shapes import run_in
from kernel_core.generator.sizes import Size, is_one, product
from kernel_core.generator.text import NAME


@dataclass
class Written:
    """A kernel and what its launch needs."""

    name: str
    text: str
    grid: str
    """Host text of the grid; may name the sizes in `totals`."""
    tensors: dict[str, Value]
    """By the names of their arguments."""
    numbers: dict[str, str]
    """Host texts by the names of their arguments."""
    constants: dict[str, str]
    """Host texts of the constexpr arguments that no tuner sets."""
    outputs: list[Value]
    plan: str
    """One sentence: what a program does."""
    fused: tuple[str, ...] = ()
    """Pointwise operators in the kernel."""
    sizes: dict[str, Size] = field(default_factory=dict)
    """Sizes among the numbers."""
    totals: dict[str, bool] = field(default_factory=dict)
    """Sizes that the host computes before the launch; True for numbers of rows or elements."""
    helpers: dict[str, str] = field(default_factory=dict)
    warps: int = 4
    """Warps of a program; 4 are Triton's default."""
    starts_from: Value | None = None
    """Tensor that the output is a copy of before the launch."""


@dataclass
class Context:
    """Region to write, and names for its tensors."""

    region: Region
    materialised: set[int]
    """Values that are in memory after some kernel or call."""
    name_of: Callable[[Value], str]
    name: str
    precision: str

    def kernel(self, groups: Sequence[Group]) -> Kernel:
        """An empty kernel of the region."""
        own = self.region.core

        def inside(value: Value) -> bool:
            return id(value) in own or (value.op in CHEAP and id(value) not in self.materialised)

        kernel = Kernel(self.name, inside, self.name_of)
        read = {id(tensor) for value in own.values() for tensor in value.tensors}
        kernel.results = {id(value) for value in self.region.outputs} - read
        kernel.name_sizes(groups)
        return kernel

    @property
    def is_channels_last(self) -> bool:
        """True if the region stores a tensor with channels last, or loads it."""
        waiting, seen = [*self.region.core.values()], set[int]()
        while waiting:
            value = waiting.pop()
            if is_channels_last(value):
                return True
            seen.add(id(value))
            is_loaded = id(value) in self.materialised
            waiting += [tensor for tensor in value.tensors if id(tensor) not in seen and not is_loaded]
        return False

    def finish(
        self, kernel: Kernel, constants: dict[str, str], grid: str, plan: str, *, decorator: str = "",
        helpers: dict[str, str] | None = None, tuned: Sequence[str] = (), warps: int = 4,
    ) -> Written:  # fmt: skip
        """The text of the kernel; `constants` are its constexpr parameters with host values."""
        kernel.take_products_apart()
        kernel.name_roles()
        kernel.name_products()
        shapes = [(name, value.shape) for name, value in kernel.pointers.items()]
        literals = {  # sizes of the problem's text that the host has in no shape
            name: size.text for name, size in kernel.sizes.items()
            if size.text.isdigit() and name not in kernel.totals and run_in(size, shapes) is None
        }  # fmt: skip
        lines = NAME.sub(lambda match: literals.get(match[0], match[0]), "\n".join(kernel.lines()))
        read = set(re.findall(r"\w+", lines + decorator))
        kernel.numbers = {name: text for name, text in kernel.ordered_numbers().items() if name in read}
        outputs = [id(value) for value in self.region.outputs]
        kernel.pointers = dict(sorted(kernel.pointers.items(), key=lambda item: id(item[1]) in outputs))
        constexprs = [f"{name}: tl.constexpr" for name in (*constants, *tuned)]
        parameters = [*kernel.pointers, *kernel.numbers, *constexprs]
        head = folded(f"def {self.name}({', '.join(parameters)}):")
        text = f"{decorator}@triton.jit\n{head}\n    # {plan}\n{lines}\n"
        return Written(
            self.name, text, grid, kernel.pointers, kernel.numbers, constants, self.region.outputs,
            plan, tuple(kernel.fused), kernel.sizes, kernel.totals, helpers or {}, warps,
        )  # fmt: skip


@dataclass
class Blocks:
    """A kernel whose programs own `BLOCK` elements of a tensor each."""

    kernel: Kernel
    groups: list[Group]
    coords: list[Index]
    grid: str
    constants: dict[str, str]
    tile: str = "(BLOCK,)"
    """Python text of the block's shape."""
    warps: int = 4


_MOST_BLOCKS = 65535
"""Programs along the second axis of a grid."""


def can_be_row(value: Value, axis: int, block: int) -> bool:
    """True if the axes of a tensor from `axis` on fill half a block, and no more blocks than a grid has."""
    return 0 < axis < value.rank and block // 2 <= int(product(value.shape[axis:])) <= _MOST_BLOCKS * block


def blocks_of(context: Context, value: Value, names: Sequence[str], block: int, axis: int = 0) -> Blocks:
    """Blocks of rows that are a tensor's axes from `axis` on; of all elements where these can be no row.

    The index of all elements is `int64`, which a GPU divides slowly; in a row it is `int32`.
    """
    shape = value.shape
    if not can_be_row(value, axis, block):
        group = Group("i", shape, tuple(names), mask="mask")
        kernel = context.kernel([group])
        count = kernel.total(product(shape), "n_elements", is_flat=True)
        kernel.line("i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
        kernel.line(f"mask = i < {count}")
        coords = [group.digit(k) for k in range(value.rank)]
        return Blocks(kernel, [group], coords, f"(triton.cdiv({count}, {block}),)", {"BLOCK": str(block)})
    row = Group("row", shape[:axis], tuple(names[:axis]))
    cols = Group("cols", shape[axis:], tuple(names[axis:]), mask="mask")
    kernel = context.kernel([row, cols])
    length = kernel.total(product(shape[axis:]), "n_cols")
    number = kernel.total(product(shape[:axis]), "n_rows", is_flat=True, is_argument=False)
    kernel.line("row = tl.program_id(0).to(tl.int64)")
    kernel.line("cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)")
    kernel.line(f"mask = cols < {length}")
    coords = [*map(row.digit, range(axis)), *map(cols.digit, range(value.rank - axis))]
    grid = f"({number}, triton.cdiv({length}, {block}))"
    return Blocks(kernel, [row, cols], coords, grid, {"BLOCK": str(block)})


_TILE, _MOST_ROWS = 4096, 64
"""Elements of a tile, and channels among them."""


def tiles_of(context: Context, value: Value, names: Sequence[str]) -> Blocks:
    """Tiles of channels and places of an image, for tensors that differ in the order of their axes.

    Triton loads and stores a tile along the axis that is last in memory, whatever the order.
    """
    shape = value.shape
    num_rows = min(_MOST_ROWS, power_of_two(int(shape[1])))
    constants = {"ROWS": str(num_rows), "COLS": str(_TILE // num_rows)}
    image = Group("image", shape[:1], tuple(names[:1]))
    rows = Group("rows", shape[1:2], tuple(names[1:2]), "[:, None]", "rows[:, None] < {}")
    cols = Group("cols", shape[2:], tuple(names[2:]), "[None, :]", "cols[None, :] < {}")
    kernel = context.kernel([image, rows, cols])
    number = kernel.total(shape[0], "n_images", is_argument=False)
    counts = {"rows": kernel.total(shape[1], "n_rows"), "cols": kernel.total(product(shape[2:]), "n_cols")}
    if not is_one(shape[0]):
        kernel.line("image = tl.program_id(0).to(tl.int64)")
    for axis, group in ((2, rows), (1, cols)):
        block = group.name.upper()
        kernel.line(f"{group.name} = tl.program_id({axis}) * {block} + tl.arange(0, {block})")
        object.__setattr__(group, "mask", group.mask.format(counts[group.name]))
    kernel.line(f"mask = {kernel.joined_mask((rows.mask, cols.mask), 'mask')}")
    coords = [image.digit(0), rows.digit(0), *map(cols.digit, range(value.rank - 2))]
    blocks = (f"triton.cdiv({counts[group.name]}, {constants[group.name.upper()]})" for group in (cols, rows))
    grid = f"({number}, {', '.join(blocks)})"
    return Blocks(kernel, [image, rows, cols], coords, grid, constants, "(ROWS, COLS)", 8)


def store_outputs(kernel: Kernel, region: Region, anchor: Value, coords: list[Index]) -> None:
    """Store each output at the index where the anchor's own result stands; reshapes keep the order."""
    places = places_of(kernel, region, anchor, coords)
    for value in region.outputs:
        store_at(kernel, value, places[id(value)])


def store_at(kernel: Kernel, value: Value, place: tuple[list[Index], list[Index], Sequence[int]]) -> None:
    """Store a value with its own index and the place in memory."""
    coords, where, shape = place
    name = kernel.at(value, coords)
    pointer = kernel.output(value)
    own = [0 if is_one(size) else coord for coord, size in zip(where, shape, strict=True)]
    offset = flatten(in_memory_order(own, value), in_memory_order(shape, value))
    mask = kernel.mask([offset], "out")
    text = pointer if is_zero(offset) else f"{pointer} + {kernel.offset(offset, 'out')}"
    kernel.line(f"tl.store({text}, {name}{f', mask={mask}' if mask else ''})")


def places_of(
    kernel: Kernel, region: Region, anchor: Value, coords: list[Index], full: Any = None
) -> dict[int, tuple[list[Index], list[Index], Sequence[int]]]:
    """Index of each value of the core, and where it stands in memory."""
    places: dict[int, tuple[list[Index], list[Index], Sequence[int]]] = {
        id(anchor): (coords, coords, anchor.shape)
    }
    for value in region.core.values():
        if id(value) in places:
            continue
        sources = [tensor for tensor in value.tensors if id(tensor) in places]
        size = int(product(value.shape))
        equal = next((tensor for tensor in sources if int(product(tensor.shape)) == size), None)
        if value.op in ("reduce", "gather") or equal is None:
            places[id(value)] = full(value)
            continue
        index, where, shape = places[id(equal)]
        if value.op == "reshape":
            index = kernel.reshaped(index, equal.shape, value.shape)
        elif value.rank > equal.rank:
            index = [0] * (value.rank - equal.rank) + list(index)
        places[id(value)] = (list(index), where, shape)
    return places


def power_of_two(size: int) -> int:
    """The next power of two."""
    return 1 << max(int(size) - 1, 0).bit_length()
