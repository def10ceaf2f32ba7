"""Running sums and products along any dimension: plain, reversed, exclusive, masked."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.graded import Grade
from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.modules.reduction.layout import Layout, draw_layout
from kernel_core.problems.modules.reduction.skeletons import VIEW, column_launch, row_launch

_ROW = """
@triton.jit
def @K@_kernel(x_ptr, @MORE@out_ptr, n, BLOCK: tl.constexpr):
    # one program: one row, with a carried total
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    carry = @ONE@
    for start in range(0, n, BLOCK):
        r = @INDEX@
        mask = @INSIDE@
        x = tl.load(x_ptr + row * n + r, mask=mask, other=@ONE@)
        @MASKED@
        @SCAN@
        tl.store(out_ptr + row * n + r, @RESULT@, mask=mask)
"""
_TILE = """
@triton.jit
def @K@_kernel(x_ptr, @MORE@out_ptr, n, inner, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr):
    # one program: one outer index and BLOCK_C inner positions, with a carried total each
    blocks = tl.cdiv(inner, BLOCK_C)
    outer = (tl.program_id(0) // blocks).to(tl.int64)
    cols = (tl.program_id(0) % blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
    rows = tl.arange(0, BLOCK_N)
    carry = tl.full((BLOCK_C,), @ONE@, dtype=tl.float32)
    for start in range(0, n, BLOCK_N):
        r = @INDEX@
        mask = @INSIDE@ & (cols[None, :] < inner)
        offs = (outer * n + r) * inner + cols[None, :]
        x = tl.load(x_ptr + offs, mask=mask, other=@ONE@)
        @MASKED@
        @SCAN@
        tl.store(out_ptr + offs, @RESULT@, mask=mask)
"""
_COLUMN = """
@triton.jit
def @K@_kernel(x_ptr, @MORE@out_ptr, n, inner, BLOCK: tl.constexpr):
    # one program: BLOCK neighbouring columns, one step of the scan after the other
    blocks = tl.cdiv(inner, BLOCK)
    outer = (tl.program_id(0) // blocks).to(tl.int64)
    cols = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < inner
    total = tl.full((BLOCK,), @ONE@, dtype=tl.float32)
    for i in range(n):
        offs = (outer * n + @STEP@) * inner + cols
        x = tl.load(x_ptr + offs, mask=mask, other=@ONE@)
        @MASKED@
        @ADD@
"""

_KEPT = "x = x * tl.load(mask_ptr + @AT@, mask=mask, other=0).to(tl.float32)"


@dataclass(frozen=True)
class _Scan:
    """A kind of scan and the ways in which it is written."""

    name: str
    doc: str
    forward: tuple[tuple[str, ...], ...]
    product: bool = False
    reverse: bool = False
    exclusive: bool = False
    masked: bool = False


_SCANS = (
    _Scan(
        "cumsum", "Running sum along one dimension.",
        (("return torch.cumsum(x, dim=self.dim)",), ("return x.cumsum(dim=self.dim)",)),
    ),
    _Scan(
        "cumprod", "Running product along one dimension.",
        (("return torch.cumprod(x, dim=self.dim)",), ("return x.cumprod(dim=self.dim)",)), product=True,
    ),
    _Scan(
        "cumsum_reverse", "Running sum from the end of one dimension to its start.",
        (
            ("return torch.flip(torch.cumsum(torch.flip(x, [self.dim]), dim=self.dim), [self.dim])",),
            ("flipped = torch.flip(x, dims=(self.dim,))",
             "return torch.cumsum(flipped, dim=self.dim).flip(self.dim)"),
        ),
        reverse=True,
    ),
    _Scan(
        "cumsum_exclusive", "Sum of all earlier positions along one dimension.",
        (
            ("zeros = torch.zeros_like(x.narrow(self.dim, 0, 1))",
             "shifted = torch.cat([zeros, x.narrow(self.dim, 0, x.size(self.dim) - 1)], dim=self.dim)",
             "return torch.cumsum(shifted, dim=self.dim)"),
            ("total = torch.cumsum(x, dim=self.dim)", "first = torch.zeros_like(x.narrow(self.dim, 0, 1))",
             "return torch.cat((first, total.narrow(self.dim, 0, x.size(self.dim) - 1)), dim=self.dim)"),
        ),
        exclusive=True,
    ),
    _Scan(
        "cumsum_masked", "Running sum along one dimension of the positions that a mask keeps.",
        (("return torch.cumsum(x * mask, dim=self.dim)",),
         ("kept = x * mask", "return torch.cumsum(kept, dim=self.dim)")),
        masked=True,
    ),
)  # fmt: skip


def scan(rng: random.Random) -> Draft:
    """A running sum or product along any dimension."""
    one = rng.choice(_SCANS)
    layout = draw_layout(rng, (2, 2, 3, 4), most_n=2048 if one.product else 50_000)
    module = _module(one, layout, rng)
    row = _kernel(one, _ROW, "offs", "BLOCK", "carry", "")
    tile = _kernel(one, _TILE, "rows[:, None]", "BLOCK_N", "carry[None, :]", "[:, None]")
    arguments = "x, mask, out, n, inner" if one.masked else "x, out, n, inner"
    names = arguments.removesuffix(", inner")
    generic = _answer("fused", one, tile, _tile_launch(one.name, arguments), _TILE_REASON)
    if layout.last:
        first = _answer("naive", one, row, (row_launch(one.name, names),), _ROW_REASON)
        tuned = _answer("tuned", one, row, (row_launch(one.name, names, 4096, 8),), _ROW_REASON)
    else:
        column = _column(one)
        first = _answer("naive", one, column, (column_launch(one.name, arguments),), _COLUMN_REASON)
        tuned = _answer("tuned", one, column, (column_launch(one.name, arguments, 128),), _COLUMN_REASON)
    return draft(rng, "scan", (one.name,), module, (first, generic, tuned, _wrong(one, generic)))


_ROW_REASON = (
    "A row is read once, block by block. The scan inside a block runs in registers, and the total of all "
    "earlier blocks is carried into the next one."
)
_TILE_REASON = (
    "The tensor is (outer, n, inner); a program owns a few inner positions and scans n in blocks, with one "
    "carried total a position. Strides make every dimension the same case."
)
_COLUMN_REASON = (
    "Inner positions are neighbours in memory, so a program takes a block of them and steps through n with "
    "a running total a lane: loads are contiguous and no lanes have to be combined."
)


def _module(one: _Scan, layout: Layout, rng: random.Random) -> Module:
    plain = rng.choice((f"torch.rand({layout.shape})", f"torch.randn({layout.shape})"))
    near_one = rng.choice(
        (f"0.1 * torch.rand({layout.shape}) + 0.95", f"1.0 + 0.02 * torch.randn({layout.shape})")
    )
    kept = rng.choice((f"torch.randint(0, 2, ({layout.shape})).bool()", f"torch.rand({layout.shape}) > 0.4"))
    return Module(
        doc=one.doc,
        init_args=(rng.choice(("dim", "dim: int")),),
        init_lines=("self.dim = dim",),
        forward_args=("x", "mask") if one.masked else ("x",),
        forward_lines=rng.choice(one.forward),
        sizes=layout.sizes,
        inputs=(near_one if one.product else plain, *((kept,) if one.masked else ())),
        init_inputs=(layout.init_input,),
        constants=layout.constants,
    )


def _kernel(one: _Scan, template: str, lanes: str, block: str, carry: str, axis: str) -> str:
    index = f"n - 1 - (start + {lanes})" if one.reverse else f"start + {lanes}"
    inside = "r >= 0" if one.reverse else "r < n"
    if axis:
        inside = f"({inside})"
    if one.product:
        last = f"tl.where({lanes} == {block} - 1, y, 0.0)"
        steps = f"y = tl.cumprod(x, axis=0) * {carry}\ncarry = tl.sum({last}, axis=0)"
    else:
        steps = f"y = tl.cumsum(x, axis=0) + {carry}\ncarry += tl.sum(x, axis=0)"
    where = "offs" if axis else "row * n + r"
    return fill(
        template, K=one.name, MORE="mask_ptr, " if one.masked else "", ONE="1.0" if one.product else "0.0",
        INDEX=index, INSIDE=inside, SCAN=steps, RESULT="y - x" if one.exclusive else "y",
        MASKED=_KEPT.replace("@AT@", where) if one.masked else "",
    )  # fmt: skip


def _column(one: _Scan) -> str:
    add = "total *= x" if one.product else "total += x"
    store = "tl.store(out_ptr + offs, total, mask=mask)"
    return fill(
        _COLUMN, K=one.name, MORE="mask_ptr, " if one.masked else "", ONE="1.0" if one.product else "0.0",
        STEP="(n - 1 - i)" if one.reverse else "i",
        MASKED=_KEPT.replace("@AT@", "offs") if one.masked else "",
        ADD="\n".join((store, add) if one.exclusive else (add, store)),
    )  # fmt: skip


def _answer(grade: Grade, one: _Scan, function: str, launch: tuple[str, ...], reason: str) -> Answer:
    mask = ("mask = mask.contiguous()",) if one.masked else ()
    return Answer(
        grade, (function,), (*VIEW, *mask, "out = torch.empty_like(x)", *launch, "return out"), reason
    )


def _tile_launch(name: str, arguments: str) -> tuple[str, ...]:
    return (
        "BLOCK_C = min(32, triton.next_power_of_2(inner))",
        "grid = (outer * triton.cdiv(inner, BLOCK_C),)",
        f"{name}_kernel[grid]({arguments}, BLOCK_N=2048 // BLOCK_C, BLOCK_C=BLOCK_C)",
    )


def _wrong(one: _Scan, generic: Answer) -> Answer:
    if one.reverse:
        forward = mistake(generic, "n - 1 - (start + rows[:, None])", "start + rows[:, None]", "direction")
        return mistake(forward, "(r >= 0)", "(r < n)", "wrong_direction")
    if one.exclusive:
        return mistake(generic, "y - x", "y", "not_exclusive")
    if one.masked:
        return mistake(generic, "x = x * tl.load", "x += 0.0 * tl.load", "mask_not_used")
    old = "tl.cumprod(x, axis=0)" if one.product else "tl.cumsum(x, axis=0)"
    return mistake(generic, old, "x", "no_scan")
