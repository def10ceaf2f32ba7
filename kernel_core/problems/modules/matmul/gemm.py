"""The tiled product: one skeleton with strides for every layout, with what comes behind the product."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.matmul.flat import call, function

_CONFIGS = (
    (128, 128, 32, 8, 3),
    (128, 64, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (64, 64, 32, 4, 3),
)
TF32, IEEE = "", ', input_precision="ieee"'


def draw_precision(rng: random.Random) -> str:
    """The rest of `tl.dot`'s arguments: Triton's default TF32, or full float32, in equal shares."""
    return rng.choice((TF32, IEEE))


@dataclass(frozen=True)
class Tile:
    """Block sizes and the launch's options."""

    m: int
    n: int
    k: int
    warps: int = 4
    stages: int = 3
    grouped: bool = False
    """Programs go through the output in bands of rows, so that blocks of B stay in the L2 cache."""
    autotuned: bool = False


@dataclass(frozen=True)
class Product:
    """A kernel of the skeleton; texts are Triton lines."""

    name: str
    precision: str
    tile: Tile
    a: str = "a"
    b: str = "b"
    batched: bool = False
    dense: bool = False
    """Both operands are contiguous with K last, as `nn.Linear` keeps its weight, so there are no strides."""
    splits: int = 1
    """Programs that share one output tile, each with its part of K."""
    loop: tuple[str, ...] = ()
    """Lines that set `lo` and `hi`, the part of K that is not zero."""
    pointers: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    """Constants of the epilogue that differ between launches."""
    epilogue: tuple[str, ...] = ()
    """Lines over the accumulator `acc`, before it is stored as `result`."""
    result: str = "acc"
    fault: str = ""
    """`no_sum`, `same_block` or `plain_store`, for a mistake."""


def product_kernel(one: Product) -> str:
    """The Triton function, with its configurations if it is tuned at run time."""
    a, b = one.a, one.b
    strides = [] if one.dense else [f"stride_{a}m", f"stride_{a}k", f"stride_{b}k", f"stride_{b}n"]
    if one.batched:
        strides += [f"stride_{a}b", f"stride_{b}b"]
    arguments = [
        f"{a}_ptr", f"{b}_ptr", *one.pointers, "c_ptr", *one.scalars, "M", "N", "K", *strides,
        *(f"{flag}: tl.constexpr" for flag in one.flags),
        "BLOCK_M: tl.constexpr", "BLOCK_N: tl.constexpr", "BLOCK_K: tl.constexpr",
        *(["GROUP: tl.constexpr"] if one.tile.grouped else []),
        *(["SPLITS: tl.constexpr"] if one.splits > 1 else []),
    ]  # fmt: skip
    text = function(one.name, arguments, [*_program(one), *_loop(one), *_end(one)])
    return _autotune(one.tile) + text if one.tile.autotuned else text


def _autotune(tile: Tile) -> str:
    band = ', "GROUP": 8' if tile.grouped else ""
    rows = "".join(
        f'        triton.Config({{"BLOCK_M": {m}, "BLOCK_N": {n}, "BLOCK_K": {k}{band}}}, '
        f"num_warps={warps}, num_stages={stages}),\n"
        for m, n, k, warps, stages in _CONFIGS[:3]
    )
    return f'@triton.autotune(\n    configs=[\n{rows}    ],\n    key=["M", "N", "K"],\n)\n'


def _program(one: Product) -> list[str]:
    lines: list[str] = []
    if one.tile.grouped:
        lines += [
            "pid = tl.program_id(0)",
            "num_m = tl.cdiv(M, BLOCK_M)",
            "band = GROUP * tl.cdiv(N, BLOCK_N)",
            "first = pid // band * GROUP",
            "height = tl.minimum(num_m - first, GROUP)",
            "pid_m = first + pid % band % height",
            "pid_n = pid % band // height",
        ]
    else:
        lines += ["pid_m = tl.program_id(0)", "pid_n = tl.program_id(1)"]
    if one.batched:
        lines.append(f"batch = tl.program_id({1 if one.tile.grouped else 2}).to(tl.int64)")
    lines += [
        "rm = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)",
        "rn = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)",
        "rk = tl.arange(0, BLOCK_K)",
    ]
    return lines


def _loop(one: Product) -> list[str]:
    a, b = one.a, one.b
    start = "rk" if not one.loop and one.splits == 1 else "(lo + rk)"
    batch_a, batch_b = (f" + batch * stride_{x}b" if one.batched else "" for x in (a, b))
    lines = list(one.loop)
    steps, bounds = "BLOCK_K", "0, K" if not one.loop else "lo, hi"
    if one.splits > 1:
        lines.append("lo = tl.program_id(2) * BLOCK_K")
        steps, bounds = "BLOCK_K * SPLITS", "lo, K"
    so_far = "" if one.fault == "no_sum" else ", acc"
    row_a, row_b = (f"stride_{a}m", f"stride_{b}n") if not one.dense else ("K", "K")
    step_a, step_b = (f" * stride_{a}k", f" * stride_{b}k") if not one.dense else ("", "")
    advance = [] if one.fault == "same_block" else [f"    {b}_ptrs += {steps}{step_b}"]
    return [
        *lines,
        f"{a}_ptrs = {a}_ptr{batch_a} + rm[:, None] * {row_a} + {start}[None, :]{step_a}",
        f"{b}_ptrs = {b}_ptr{batch_b} + {start}[:, None]{step_b} + rn[None, :] * {row_b}",
        "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
        f"for k in range({bounds}, {steps}):",
        f"    {a} = tl.load({a}_ptrs, mask=(rm[:, None] < M) & (rk[None, :] < K - k), other=0.0)",
        f"    {b} = tl.load({b}_ptrs, mask=(rk[:, None] < K - k) & (rn[None, :] < N), other=0.0)",
        f"    acc = tl.dot({a}, {b}{so_far}{one.precision})",
        f"    {a}_ptrs += {steps}{step_a}",
        *advance,
    ]


def _end(one: Product) -> list[str]:
    batch = "batch * M * N + " if one.batched else ""
    store = "atomic_add" if one.splits > 1 and one.fault != "plain_store" else "store"
    return [
        "mask = (rm[:, None] < M) & (rn[None, :] < N)",
        *one.epilogue,
        f"tl.{store}(c_ptr + {batch}rm[:, None] * N + rn[None, :], {one.result}, mask=mask)",
    ]


@dataclass(frozen=True)
class Operands:
    """The host's expressions for both operands, already laid out as (M, K) and (K, N)."""

    a: str
    b: str
    strides_a: tuple[str, str] = ("0", "1")
    """Dimensions of rows and of K in the first operand."""
    strides_b: tuple[str, str] = ("0", "1")
    """Dimensions of K and of columns in the second operand."""
    batch: str = ""
    """The number of products; the batch is dimension 0 of both."""


def product_launch(
    one: Product,
    operands: Operands,
    *,
    tensors: Sequence[str] = (),
    scalars: Sequence[str] = (),
    out: str = "C",
    flags: Sequence[str] = (),
) -> list[str]:
    """The host's lines that launch the kernel, after M, N, K and the output are named."""
    a, b, tile = operands.a, operands.b, one.tile
    strides = [f"{a}.stride({dim})" for dim in operands.strides_a if not one.dense]
    strides += [f"{b}.stride({dim})" for dim in operands.strides_b if not one.dense]
    if one.batched:
        strides += [f"{a}.stride(0)", f"{b}.stride(0)"]
    options = [f"BLOCK_M={tile.m}", f"BLOCK_N={tile.n}", f"BLOCK_K={tile.k}"]
    options += ["GROUP=8"] if tile.grouped else []
    options += [f"SPLITS={one.splits}"] if one.splits > 1 else []
    options += [f"num_warps={tile.warps}"] if tile.warps != 4 else []
    options += [f"num_stages={tile.stages}"] if tile.stages != 3 else []
    options = [*flags, *([] if tile.autotuned else options)]
    arguments = [a, b, *tensors, out, *scalars, "M", "N", "K", *strides, *options]
    return [_grid(one, operands), *call(f"{one.name}[grid]", arguments).split("\n")]


def _grid(one: Product, operands: Operands) -> str:
    tile = one.tile
    m, n = str(tile.m), str(tile.n)
    if tile.autotuned:
        m, n = 'meta["BLOCK_M"]', 'meta["BLOCK_N"]'
    blocks = [f"triton.cdiv(M, {m})", f"triton.cdiv(N, {n})"]
    programs = [" * ".join(blocks)] if tile.grouped else blocks
    programs += [operands.batch] if one.batched else []
    programs += [str(one.splits)] if one.splits > 1 else []
    ending = "," if len(programs) == 1 else ""
    text = f"({', '.join(programs)}{ending})"
    return f"grid = lambda meta: {text}" if tile.autotuned else f"grid = {text}"
