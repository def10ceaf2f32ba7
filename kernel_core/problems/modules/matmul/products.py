"""Families of products of two matrices: all shapes, transposed operands, triangular ones."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from kernel_core.problems.graded import Grade, GradedKernel
from kernel_core.problems.modules.draft import Draft, Module, draft_sizes, kernel_source, reference_source
from kernel_core.problems.modules.matmul.gemm import (
    IEEE,
    TF32,
    Operands,
    Product,
    Tile,
    draw_precision,
    product_kernel,
    product_launch,
)
from kernel_core.problems.modules.matmul.layouts import (
    LAYOUTS,
    OPERANDS,
    REMARKS,
    WORDS,
    Layout,
    draw_sizes,
    names_of,
    written,
)
from kernel_core.problems.modules.style import Style, draw_style

NAMES = ("matmul_kernel", "matmul_kernel", "gemm_kernel")
DOCS = ("The product of {}.", "Multiplies {}.", "Matrix product of {}.")
SMALL = Tile(32, 32, 32)
LARGE = Tile(128, 128, 32, 8, 3)
SKIPPING = ("matmul_large_k", "matmul_triangular")
"""Families with a remark that is not true of the naive kernel."""


@dataclass(frozen=True)
class Problem:
    """A product with the host's lines that lay its operands out and name M, K and N."""

    family: str
    operators: tuple[str, ...]
    module: Module
    style: Style
    setup: tuple[str, ...]
    operands: Operands
    ending: tuple[str, ...]
    """Lines after the launch."""
    allocation: str = "C = torch.empty((M, N), device={a}.device, dtype={a}.dtype)"
    split_allocation: str = "C = torch.zeros((M, N), device={a}.device, dtype={a}.dtype)"
    """For programs that add to the output."""
    why: str = ""


def upper_style(rng: random.Random) -> Style:
    """A style in which sizes are mostly capitals, as matrices have them."""
    style = draw_style(rng)
    return replace(style, upper_sizes=style.upper_sizes or rng.random() < 0.6)


def matmul(rng: random.Random) -> Draft:
    """Square, rectangular, irregular, tall, wide and symmetric matrices, none transposed."""
    weights = {
        "square": 3,
        "rectangular": 3,
        "irregular": 3,
        "tall": 2,
        "wide": 1,
        "small_k": 3,
        "symmetric": 2,
    }
    shape = rng.choices(list(weights), list(weights.values()))[0]
    problem = _plain("matmul", shape, Layout(), rng)
    return product_draft(problem, Product("", draw_precision(rng), SMALL), rng)


def matmul_transposed(rng: random.Random) -> Draft:
    """One operand or both given transposed."""
    shape = rng.choice(("square", "rectangular", "rectangular", "irregular", "tall", "small_k"))
    problem = _plain("matmul_transposed", shape, rng.choice(LAYOUTS), rng)
    return product_draft(problem, Product("", draw_precision(rng), SMALL), rng)


def matmul_large_k(rng: random.Random) -> Draft:
    """A long shared dimension: several programs add their parts of it into one output tile."""
    layout = rng.choice((Layout(), Layout(), *LAYOUTS))
    problem = _plain("matmul_large_k", "large_k", layout, rng)
    problem = replace(
        problem,
        why="With one program a tile most of the GPU idles, so each tile's K is split over 32 programs "
        "that add their sums atomically.",
    )
    return product_draft(problem, Product("", draw_precision(rng), SMALL, splits=32), rng)


def matmul_triangular(rng: random.Random) -> Draft:
    """Upper or lower triangular operands: blocks of K that hold only zeros are skipped."""
    upper = rng.random() < 0.5
    cut, word = ("triu", "upper") if upper else ("tril", "lower")
    a, b = rng.choice(OPERANDS)
    module = Module(
        doc=rng.choice(DOCS).format(f"{word} triangular matrices"),
        init_args=(),
        init_lines=(),
        forward_args=(a, b),
        forward_lines=(f"return torch.{cut}({written(rng, a, b, Layout())})",),
        sizes=draw_sizes(rng, "square"),
        inputs=(a, b),
        init_inputs=(),
        input_lines=tuple(f"{x} = torch.{cut}(torch.{rng.choice(('rand', 'randn'))}(n, n))" for x in (a, b)),
    )
    low, high = ("pid_m", "pid_n") if upper else ("pid_n", "pid_m")
    block_low, block_high = ("BLOCK_M", "BLOCK_N") if upper else ("BLOCK_N", "BLOCK_M")
    problem = Problem(
        family="matmul_triangular",
        operators=(f"matmul_{cut}",),
        module=module,
        style=upper_style(rng),
        setup=(f"M, K = {a}.shape", f"N = {b}.shape[1]"),
        operands=Operands(a, b),
        ending=("return C",),
        why=f"A tile of {word} triangular factors needs only the K between its row and its column, "
        "about a third of the work; the other triangle is written as zeros.",
    )
    kept = "rm[:, None] <= rn[None, :]" if upper else "rm[:, None] >= rn[None, :]"
    one = Product(
        "",
        draw_precision(rng),
        SMALL,
        loop=(f"lo = {low} * {block_low}", f"hi = tl.minimum(K, ({high} + 1) * {block_high})"),
        epilogue=(f"acc = tl.where({kept}, acc, 0.0)",),
    )
    return product_draft(problem, one, rng)


def _plain(family: str, shape: str, layout: Layout, rng: random.Random) -> Problem:
    a, b = rng.choice(OPERANDS)
    m, k, n = names_of(shape)
    drawn = rng.choice(("torch.rand", "torch.randn"))
    inputs = (
        f"{drawn}({k}, {m})" if layout.a else f"{drawn}({m}, {k})",
        f"{drawn}({n}, {k})" if layout.b else f"{drawn}({k}, {n})",
    )
    symmetric = shape == "symmetric"
    lines = tuple(
        line
        for x, text in zip((a, b), inputs, strict=True)
        for line in (f"{x} = {text}", f"{x} = ({x} + {x}.T) / 2")
    )
    turned = {(True, False): "the first transposed", (False, True): "the second transposed"}
    both = turned.get((layout.a, layout.b), "both transposed" if layout.a else "")
    doc = rng.choice(DOCS).format(WORDS[shape] + (f", {both}" if both else ""))
    module = Module(
        doc=doc,
        init_args=(),
        init_lines=(),
        forward_args=(a, b),
        forward_lines=(f"return {written(rng, a, b, layout)}",),
        sizes=draw_sizes(rng, shape),
        inputs=(a, b) if symmetric else inputs,
        init_inputs=(),
        input_lines=lines if symmetric else (),
    )
    views = [f"{x} = {x}.T" for x, flag in ((a, layout.a), (b, layout.b)) if flag]
    name = "matmul" + ("_ta" if layout.a else "") + ("_tb" if layout.b else "")
    strided = "A transposed view only swaps two strides, so nothing is copied." if both else ""
    return Problem(
        family=family,
        operators=(name,),
        module=module,
        style=upper_style(rng),
        setup=(*views, f"M, K = {a}.shape", f"N = {b}.shape[1]"),
        operands=Operands(a, b),
        ending=("return C",),
        why=" ".join(part for part in (REMARKS.get(shape, ""), strided) if part),
    )


def product_draft(problem: Problem, one: Product, rng: random.Random) -> Draft:
    """The problem and its kernels: small tiles, larger ones, the largest in TF32 and in bands."""
    one = replace(one, name=rng.choice(NAMES))
    fused = Tile(128, 64, 32, 4, 3) if one.precision == TF32 else Tile(64, 64, 32, 4, 3)
    tuned = replace(LARGE, grouped=True)
    if one.splits > 1 or one.loop:
        tuned = LARGE
    elif rng.random() < 0.4:
        tuned = replace(LARGE, grouped=True, autotuned=True)
    naive = replace(one, splits=1, loop=())
    if one.splits > 1:  # tensor cores truncate each sum, which adds up over a long K
        naive = replace(naive, precision=IEEE)
    fault = "plain_store" if one.splits > 1 else rng.choice(("no_sum", "same_block"))
    tuned_one = replace(one, tile=tuned, precision=TF32)
    versions: list[tuple[Grade, Product]] = [
        ("naive", naive),
        ("fused", replace(one, tile=fused)),
        ("tuned", tuned_one),
        ("mistake", replace(one, tile=fused, fault=fault)),
    ]
    kernels = [
        GradedKernel(
            grade=grade,
            fault=version.fault,
            source=_source(problem, version),
            thinking=_thinking(problem, version, rng),
        )
        for grade, version in versions
    ]
    return Draft(
        family=problem.family,
        operators=problem.operators,
        reference=reference_source(problem.module, problem.style),
        sizes=draft_sizes(problem.module, problem.style),
        kernels=tuple(kernels),
    )


def _source(problem: Problem, one: Product) -> str:
    filled = problem.split_allocation if one.splits > 1 else problem.allocation
    host = [
        *problem.setup,
        filled.format(a=problem.operands.a),
        *product_launch(one, problem.operands),
        *problem.ending,
    ]
    return kernel_source(problem.module, [product_kernel(one)], host)


def _thinking(problem: Problem, one: Product, rng: random.Random) -> str:
    tile = one.tile
    shared = rng.choice(
        (
            f"One program computes a {tile.m} by {tile.n} tile and walks along K in steps of {tile.k}.",
            f"Each {tile.m} by {tile.n} tile of the output is one program, which sums over K in float32.",
        )
    )
    if tile.autotuned:
        shared = "Each program sums one output tile over K; the tile's size is tuned at the first call."
    banded = tile.grouped and not tile.autotuned
    order = "Bands of eight tile rows keep B in L2." if banded else ""
    exact = (
        "Tensor cores multiply in TF32 and sum in float32."
        if one.precision == TF32
        else "Products are full float32."
    )
    why = problem.why if one.splits > 1 or one.loop or problem.family not in SKIPPING else ""
    return " ".join(part for part in (why, shared, order, exact) if part)
