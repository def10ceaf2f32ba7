"""Skeletons of kernels that look along one dimension: by tiles of any layout, by rows, by columns.

A tile kernel sees a contiguous tensor as (outer, n, inner). A program owns one outer index and a block of
inner positions, and walks over n in blocks; with an inner length of one the tile is a piece of a row.
"""

from __future__ import annotations

from collections.abc import Sequence

TILE = """
@triton.jit
def @K@_kernel(x_ptr, @MORE@out_ptr, n, inner, @SCALARS@BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr):
    # one program: one outer index, BLOCK_C inner positions, all n positions in between
    blocks = tl.cdiv(inner, BLOCK_C)
    outer = (tl.program_id(0) // blocks).to(tl.int64)
    cols = (tl.program_id(0) % blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
    rows = tl.arange(0, BLOCK_N)
    x_ptr += outer * n * inner
    @SHIFT@
    @INIT@
    for start in range(0, n, BLOCK_N):
        r = start + rows[:, None]
        mask = (r < n) & (cols[None, :] < inner)
        offs = r.to(tl.int64) * inner + cols[None, :]
        x = tl.load(x_ptr + offs, mask=mask, other=@OTHER@)
        @UPDATE@
    @FINISH@
"""
TILE_WRITE = """\
for start in range(0, n, BLOCK_N):
    r = start + rows[:, None]
    mask = (r < n) & (cols[None, :] < inner)
    offs = r.to(tl.int64) * inner + cols[None, :]
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    @MAP@
    tl.store(out_ptr + offs, y, mask=mask)"""
TILE_SHIFT = "out_ptr += outer * n * inner"
TILE_STORE = "tl.store(out_ptr + outer * inner + cols, @RESULT@, mask=cols < inner)"

ROW = """
@triton.jit
def @K@_kernel(x_ptr, @MORE@out_ptr, n, @SCALARS@BLOCK: tl.constexpr):
    # one program: one row of n neighbours
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x_ptr += row * n
    @SHIFT@
    @INIT@
    for start in range(0, n, BLOCK):
        cols = start + offs
        x = tl.load(x_ptr + cols, mask=cols < n, other=@OTHER@)
        @UPDATE@
    @FINISH@
"""
ROW_WRITE = """\
for start in range(0, n, BLOCK):
    cols = start + offs
    x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
    @MAP@
    tl.store(out_ptr + cols, y, mask=cols < n)"""
ROW_SHIFT = "out_ptr += row * n"

COLUMN = """
@triton.jit
def @K@_kernel(x_ptr, @MORE@out_ptr, n, inner, @SCALARS@BLOCK: tl.constexpr):
    # one program: BLOCK neighbouring columns, one position of n after the other
    blocks = tl.cdiv(inner, BLOCK)
    outer = (tl.program_id(0) // blocks).to(tl.int64)
    cols = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < inner
    x_ptr += outer * n * inner + cols
    @SHIFT@
    @INIT@
    for i in range(n):
        x = tl.load(x_ptr, mask=mask, other=@OTHER@)
        @UPDATE@
        x_ptr += inner
    @FINISH@
"""

ONLINE_START = """\
m = tl.full((BLOCK_C,), float("-inf"), dtype=tl.float32)
s = tl.zeros((BLOCK_C,), dtype=tl.float32)"""
ONLINE = """\
new_m = tl.maximum(m, tl.max(x, axis=0))
s = s * tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m[None, :]), axis=0)
m = new_m"""

VIEW = (
    "x = x.contiguous()",
    "dim = self.dim % x.dim()",
    "outer, n, inner = x.shape[:dim].numel(), x.shape[dim], x.shape[dim + 1:].numel()",
)
"""The lines of `forward` that see a tensor as (outer, n, inner)."""


def fixed_view(dim: int) -> tuple[str, ...]:
    """The same for a dimension that the problem writes as a literal."""
    if dim == 1:
        return (
            "x = x.contiguous()",
            "outer, n, inner = x.shape[0], x.shape[1], x.shape[2:].numel()",
        )
    return ("x = x.contiguous()", "n = x.shape[-1]", "outer, inner = x.numel() // n, 1")


def tile_launch(kernel: str, arguments: str, elements: int = 4096, warps: int = 4) -> tuple[str, ...]:
    """The lines that choose a tile and launch; `arguments` stand before the sizes of the tile."""
    return (
        "BLOCK_C = min(128, triton.next_power_of_2(inner))",
        f"BLOCK_N = min({elements} // BLOCK_C, triton.next_power_of_2(n))",
        "grid = (outer * triton.cdiv(inner, BLOCK_C),)",
        f"{kernel}_kernel[grid]({arguments}, BLOCK_N=BLOCK_N, BLOCK_C=BLOCK_C{_warps(warps)})",
    )


def row_launch(kernel: str, arguments: str, block: int = 1024, warps: int = 4, rows: str = "outer") -> str:
    """The line that launches a program a row; a block above 1024 shrinks to the row's length."""
    fitted = str(block) if block <= 1024 else f"min({block}, triton.next_power_of_2(n))"
    return f"{kernel}_kernel[({rows},)]({arguments}, BLOCK={fitted}{_warps(warps)})"


def column_launch(kernel: str, arguments: str, block: int = 256) -> str:
    """The line that launches a program a block of columns."""
    return f"{kernel}_kernel[(outer * triton.cdiv(inner, {block}),)]({arguments}, BLOCK={block})"


def either_launch(row: str, other: Sequence[str]) -> tuple[str, ...]:
    """The lines that launch the row kernel where the dimension is the last, else another one."""
    return ("if inner == 1:", f"    {row}", "else:", *(f"    {line}" for line in other))


def _warps(warps: int) -> str:
    return "" if warps == 4 else f", num_warps={warps}"
