"""GEMM schedule: a program owns a tile of the product and walks along K; the epilogue works on the tile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch

from kernel_core.generator.build import permute
from kernel_core.generator.index import Group, Index, letters
from kernel_core.generator.ir import Value, make, stored
from kernel_core.generator.kernel import Kernel
from kernel_core.generator.schedules.written import Context, Written, store_outputs
from kernel_core.generator.sizes import is_one, product
from kernel_core.generator.values import HALF

CONFIGS = """CONFIGS = [
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64}, num_warps=4, num_stages=4),
]
"""
LARGE_CONFIGS = """LARGE_CONFIGS = [
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=8, num_stages=4),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 32}, num_warps=8, num_stages=3),
]
"""
"""Tiles for large products; the first is for runs at small sizes."""
TF32X3_CONFIGS = """TF32X3_CONFIGS = [
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=8, num_stages=3),
]
"""
"""Tiles for three products in TF32 for one, of any size: both parts of an operand take registers."""
_LEAST_SIDE, _LEAST_K, _LEAST_RESULTS, _LEAST_PRODUCTS = 512, 256, 2**22, 2**30
"""Each of M and N; K; results for large tiles; multiply-adds for copies of operands.

2**22 results are 256 tiles of 128 by 128, nearly two for each of an H200's 132 processors. An element of a
copy is read and written: 8 bytes take 1.9 ps at 4.3 TB/s, and a transposed copy may take twice that. Reading
along K saved 12 ps for 1000 multiply-adds: KernelBench's problems 1 and 17, of 2**36, took 1.31 and 0.47 ms
on an H200. So a copy pays off from 150 to 300 uses of an element, and 2**30 multiply-adds save 13 us, more
than the launch of a copy takes. With a small K, memory bounds the product.
"""
_ALIGNED = 16
"""K is a multiple of it where Triton loads 16 bytes at once along K; else a K-major operand saves little."""
_GROUP = 8
"""Rows of tiles that programs which run together share."""

_LONG, _PART = 16384, 4096
"""Terms of a sum from which it is added up in parts, and terms of a part.

A tensor core truncates its sum in each step. For numbers of one sign this loses in proportion to K: 0.46 % at
2**19 and 0.84 % at 2**20 on an H200 (KernelBench's problems 6 and 4). Operands that TF32 truncates lose some
0.07 % at any K, and three products in TF32 for one sum up the same way. Other additions are rounded.
"""

Axes = tuple[tuple[int, ...], tuple[str, ...]]
"""Sizes and names of axes."""


def write(context: Context) -> Written:
    """A product of two tensors; batches that both have are an axis of the grid."""
    anchor = context.region.anchor
    a, b = anchor.inputs
    names = letters(anchor.rank)
    lead = anchor.rank - 2
    b_batched = [axis for axis in range(b.rank - 2) if int(b.shape[axis]) != 1]
    folds = not b_batched
    batch = () if folds else tuple(anchor.shape[:lead])
    m_sizes = tuple(anchor.shape[: lead + 1]) if folds else (anchor.shape[lead],)
    m_names = names[: lead + 1] if folds else (names[lead],)
    tile = Tile(
        context,
        (batch, names[:lead]),
        (m_sizes, m_names),
        (anchor.shape[-1], names[-1]),
        ((a.shape[-1],), ("K",)),
    )
    z = [tile.batch.digit(axis) for axis in range(len(batch))]
    m = [tile.m.digit(axis) for axis in range(len(m_sizes))]
    own: list[Index] = [*z, *m, tile.n.digit(0)]
    row = [*z, *(tile.m_in.digit(axis) for axis in range(len(m_sizes)))]
    if tile.repays_copies:
        a, b = _along_k(tile, a, a.rank - 1), _along_k(tile, b, b.rank - 2)

    def left() -> str:
        return tile.kernel.at(a, aligned([*row, tile.k_of_a.digit(0)], a))

    def right() -> str:
        front = z if not folds else [0] * lead
        return tile.kernel.at(b, aligned([*front, tile.k_of_b.digit(0), tile.n_in.digit(0)], b))

    plan = "Each program computes one tile of the product, loops over K, and applies the epilogue."
    if tile.is_large:
        plan = (
            "Each program computes one tile and its epilogue; groups of tiles share operands in the L2 cache."
        )
    return tile.finish(left, right, own, plan)


def _along_k(tile: Tile, operand: Value, k: int) -> Value:
    """The operand, read from a copy of the host's with axis `k` contiguous where it is another in memory.

    An operand that the kernel computes from other values stays as it is.
    """
    source, order = operand, list(range(operand.rank))
    while source.op == "permute":
        source, order = source.inputs[0], [source.order[axis] for axis in order]
    memory = stored(source)
    if order[k] == operand.rank - 1 or not tile.kernel.in_memory(memory):
        return operand
    axes = [*(axis for axis in range(operand.rank) if axis != k), k]
    layout = tuple(order[axis] for axis in axes)
    name = f"{tile.context.name_of(memory)}_t"
    shape = [source.shape[axis] for axis in layout]
    copy = make("transposed", (source,), shape, source.dtype, order=layout, origin=(0, name))
    return permute(copy, [axes.index(axis) for axis in range(operand.rank)])


def aligned(coords: list[Index], value: Value) -> list[Index]:
    """Index of an operand that may have fewer axes, or axes of size 1."""
    own = coords[len(coords) - value.rank :]
    return [0 if is_one(size) else coord for coord, size in zip(own, value.shape, strict=True)]


class Tile:
    """A kernel that owns tiles of a product; matrix products and convolutions differ in their loads."""

    def __init__(
        self, context: Context, batch: Axes, m: Axes, n: tuple[int, str], k: Axes,
        taps: Sequence[Group] = (),
    ) -> None:  # fmt: skip
        """Axes of the batch, of rows, columns and of the sum; `taps` are loops around the sum."""
        self.context = context
        self.taps = [tap for tap in taps if not is_one(tap.sizes[0])]
        self.is_long = int(product(k[0])) * int(product(tap.sizes[0] for tap in self.taps)) >= _LONG
        depth = len(self.taps) + 1 + self.is_long
        self.batch = Group("z", *batch)
        self.m = Group("m", *m, "[:, None]")
        self.n = Group("n", (n[0],), (n[1],), "[None, :]")
        self.k_of_a = Group("k", *k, "[None, :]", depth=depth)
        self.k_of_b = Group("k", *k, "[:, None]", depth=depth)
        self.kernel: Kernel = context.kernel([self.batch])
        sizes = {"M": product(m[0]), "N": n[0], "K": product(k[0])}
        roles = {name: name for name in sizes}
        if context.region.anchor.op == "conv":
            roles |= {"N": "OC", "K": "C" if len(k[0]) == 1 else "K"}
        self.size = {
            name: self.kernel.total(size, roles[name], name == "M", is_own=True)
            for name, size in sizes.items()
        }
        for group, name in ((self.m, "M"), (self.n, "N"), (self.k_of_a, "K"), (self.k_of_b, "K")):
            object.__setattr__(group, "mask", f"{group.name}{group.view} < {self.size[name]}")
            object.__setattr__(group, "extent", self.size[name])
        self.m_in, self.n_in = (
            replace(group, name=f"{group.name}_in", mask="") for group in (self.m, self.n)
        )
        self.kernel.name_sizes([self.batch, self.m, self.n, self.m_in, self.n_in, self.k_of_a, *taps])
        self._decide(int(sizes["M"]), int(sizes["N"]), int(sizes["K"]), is_matrix=not taps)

    def _decide(self, m: int, n: int, k: int, is_matrix: bool) -> None:
        """Choose tiles and copies by the sizes of the problem; each choice is right at all sizes."""
        dtype, batches = self.context.region.anchor.dtype, int(product(self.batch.sizes))
        is_matrix = is_matrix and dtype in (torch.float32, *HALF)
        is_wide = is_matrix and min(m, n) >= _LEAST_SIDE and k >= _LEAST_K and k % _ALIGNED == 0
        self.is_large = is_wide and batches * m * n >= _LEAST_RESULTS
        """True for a product with enough tiles of the largest size."""
        is_tf32 = dtype is torch.float32 and self.context.precision == "tf32"
        self.repays_copies = is_wide and is_tf32 and batches * m * n * k >= _LEAST_PRODUCTS
        """True if the product in TF32 saves more time by K-major operands than their copies take."""

    def finish(  # type: ignore[no-untyped-def]
        self, left, right, own: list[Index], plan: str, configs: tuple[str, str] | None = None
    ) -> Written:
        """Write the loop over K and the store; `configs` are the name and the text of other tiles to try."""
        kernel, context = self.kernel, self.context
        self._place_tile()
        if self.batch.sizes:
            kernel.line("z = tl.program_id(1).to(tl.int64)")
        kernel.line("acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)")
        anchor = context.region.anchor
        is_half = anchor.dtype in HALF
        with ExitStack() as loops:
            for tap in self.taps:
                size = kernel.size(tap.sizes[0], tap.letters[0])
                loops.enter_context(kernel.loop(f"for {tap.name} in range({size}):"))
            total, first, end = "acc", "0", self.size["K"]
            if self.is_long:
                total, first = loops.enter_context(self._part())
                end = f"tl.minimum({first} + {_PART}, {end})"
            loops.enter_context(kernel.loop(f"for start in range({first}, {end}, BLOCK_K):"))
            kernel.line("k = start + tl.arange(0, BLOCK_K)")
            a, b = left(), right()
            if is_half:
                kind = "tl.float16" if anchor.dtype is torch.float16 else "tl.bfloat16"
                kernel.line(f"{total} = tl.dot({a}.to({kind}), {b}.to({kind}), {total})")
            else:
                kernel.line(f'{total} = tl.dot({a}, {b}, {total}, input_precision="{context.precision}")')
        kernel.done[id(anchor)] = ("acc", frozenset(), tuple(own))
        store_outputs(kernel, context.region, anchor, own)
        key = ", ".join(f'"{name}"' for name in dict.fromkeys(self.size.values()) if name in kernel.numbers)
        rows, cols = self.size["M"], self.size["N"]
        tiles = f'triton.cdiv({rows}, meta["BLOCK_M"]) * triton.cdiv({cols}, meta["BLOCK_N"])'
        count = kernel.total(product(self.batch.sizes), "n_batches", is_argument=False)
        batches = f", {count}" if self.batch.sizes else ","
        name, text = configs or self._configs()
        return context.finish(
            kernel, {}, f"lambda meta: ({tiles}{batches})", plan,
            decorator=f"@triton.autotune(configs={name}, key=[{key}])\n",
            helpers={name: text}, tuned=("BLOCK_M", "BLOCK_N", "BLOCK_K"),
        )  # fmt: skip

    def _place_tile(self) -> None:
        """Write the rows and columns of a program's tile; large products have groups of rows of tiles.

        A matrix product reads rows and columns modulo their number, so that its loads are masked along K
        alone: those beyond the end repeat others, and no tile stores them.
        """
        kernel = self.kernel
        row, column = "(tl.program_id(0) // tiles_n)", "(tl.program_id(0) % tiles_n)"
        if self.is_large:
            kernel.line(f"tiles_m = tl.cdiv({self.size['M']}, BLOCK_M)")
        kernel.line(f"tiles_n = tl.cdiv({self.size['N']}, BLOCK_N)")
        if self.is_large:
            kernel.line(f"tile_m, tile_n = tl.swizzle2d({row}, {column}, tiles_m, tiles_n, {_GROUP})")
            row, column = "tile_m", "tile_n"
        kernel.line(f"m = {row}.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)")
        kernel.line(f"n = {column}.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)")
        if self.context.region.anchor.op == "dot":
            for own, read in ((self.m, self.m_in), (self.n, self.n_in)):
                if not all(map(is_one, own.sizes)):
                    kernel.line(f"{read.name} = {own.name} % {own.extent}")

    def _configs(self) -> tuple[str, str]:
        """Name and text of the tiles that the tuner tries."""
        if self.context.region.anchor.dtype not in HALF and self.context.precision == "tf32x3":
            return "TF32X3_CONFIGS", TF32X3_CONFIGS
        return ("LARGE_CONFIGS", LARGE_CONFIGS) if self.is_large else ("CONFIGS", CONFIGS)

    @contextmanager
    def _part(self) -> Iterator[tuple[str, str]]:
        """Write a loop over parts of K; gives the names of a part's sum and of its first index."""
        kernel = self.kernel
        part, first = kernel.fresh("part"), kernel.fresh("first")
        with kernel.loop(f"for {first} in range(0, {self.size['K']}, {_PART}):"):
            kernel.line(f"{part} = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)")
            yield part, first
            kernel.line(f"acc += {part}")
