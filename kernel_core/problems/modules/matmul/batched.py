"""Families of products over more than two dimensions: batches of matrices, tensors by a matrix."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.matmul.gemm import Operands, Product, draw_precision
from kernel_core.problems.modules.matmul.layouts import OPERANDS, transposed
from kernel_core.problems.modules.matmul.products import SMALL, Problem, product_draft, upper_style
from kernel_core.problems.program import Size, draw_cpu_size

_BATCHES = (16, 24, 32, 48, 64)
_SIDES = (256, 384, 512, 768, 1000)
_HEADS = (8, 12, 16)
_LENGTHS = (512, 768, 1024)
_WIDTHS = (64, 80, 128)
_TENSORS: dict[int, tuple[tuple[str, tuple[tuple[str, tuple[int, ...]], ...], str], ...]] = {
    3: (
        ("btc,cd->btd", (("batch_size", (8, 16, 32)), ("seq_len", (512, 1000, 1536))), "dim out_dim"),
        ("nmk,kl->nml", (("n", (12, 24, 32)), ("m", (768, 1000, 1280))), "k l"),
    ),
    4: (
        ("bhwc,cd->bhwd", (("batch_size", (8, 16, 32)), ("height", (32, 56, 64)), ("width", (32, 56, 64))),
         "channels out_channels"),
        ("nijk,kl->nijl", (("n", (4, 6, 12)), ("i", (64, 96, 128)), ("j", (128, 200, 256))), "k l"),
    ),
}  # fmt: skip


def batched_matmul(rng: random.Random) -> Draft:
    """One product for each matrix of a batch, the second operand transposed at times."""
    turned = rng.random() < 0.35
    a, b = rng.choice(OPERANDS)
    right = transposed(rng, b, batch=True) if turned else b
    text = rng.choice((f"torch.bmm({a}, {right})", f"torch.matmul({a}, {right})", f"{a} @ {right}"))
    sizes = (
        Size("batch_size", rng.choice(_BATCHES), rng.randint(2, 3)),
        *(Size(name, rng.choice(_SIDES), draw_cpu_size(rng, 33, 60)) for name in ("m", "k", "n")),
    )
    drawn = rng.choice(("torch.rand", "torch.randn"))
    module = Module(
        doc=rng.choice(("A batch of matrix products.", "Multiplies the matrices of two batches pairwise.")),
        init_args=(),
        init_lines=(),
        forward_args=(a, b),
        forward_lines=(f"return {text}",),
        sizes=sizes,
        inputs=(f"{drawn}(batch_size, m, k)", f"{drawn}(batch_size, {'n, k' if turned else 'k, n'})"),
        init_inputs=(),
    )
    problem = Problem(
        family="batched_matmul",
        operators=("bmm_tb" if turned else "bmm",),
        module=module,
        style=upper_style(rng),
        setup=(
            *([f"{b} = {b}.transpose(1, 2)"] if turned else []),
            f"batch, M, K = {a}.shape",
            f"N = {b}.shape[2]",
        ),
        operands=Operands(a, b, ("1", "2"), ("1", "2"), "batch"),
        ending=("return C",),
        allocation="C = torch.empty((batch, M, N), device={a}.device, dtype={a}.dtype)",
        why="The batch is a dimension of the grid, and its stride moves both pointers.",
    )
    return product_draft(problem, Product("", draw_precision(rng), SMALL, batched=True), rng)


def heads_matmul(rng: random.Random) -> Draft:
    """Products over two leading dimensions, as queries and keys of several heads have them."""
    a, b = rng.choice((("A", "B"), ("q", "k"), ("x", "y"), ("scores", "values")))
    scores = rng.random() < 0.5
    right = rng.choice((f"{b}.transpose(-2, -1)", f"{b}.transpose(2, 3)")) if scores else b
    sizes = (
        Size("batch_size", rng.choice((4, 8, 16)), 2),
        Size("num_heads", rng.choice(_HEADS), 2),
        Size("seq_len", rng.choice(_LENGTHS), draw_cpu_size(rng, 33, 50)),
        Size("head_dim", rng.choice(_WIDTHS), draw_cpu_size(rng, 33, 50)),
    )
    lead, length, width = "batch_size, num_heads", "seq_len", "head_dim"
    first = f"torch.randn({lead}, {length}, {width if scores else length})"
    module = Module(
        doc="Matrix products over a batch and its heads.",
        init_args=(),
        init_lines=(),
        forward_args=(a, b),
        forward_lines=(f"return {rng.choice(('torch.matmul({}, {})', '{} @ {}')).format(a, right)}",),
        sizes=sizes,
        inputs=(first, f"torch.randn({lead}, {length}, {width})"),
        init_inputs=(),
    )
    view = f"{b} = {b}.reshape(-1, *{b}.shape[2:])"
    problem = Problem(
        family="heads_matmul",
        operators=("matmul_4d_tb" if scores else "matmul_4d",),
        module=module,
        style=upper_style(rng),
        setup=(
            f"lead = {a}.shape[:2]",
            f"{a} = {a}.reshape(-1, *{a}.shape[2:])",
            f"{view}.transpose(1, 2)" if scores else view,
            f"batch, M, K = {a}.shape",
            f"N = {b}.shape[2]",
        ),
        operands=Operands(a, b, ("1", "2"), ("1", "2"), "batch"),
        ending=("return C.view(*lead, M, N)",),
        allocation="C = torch.empty((batch, M, N), device={a}.device, dtype={a}.dtype)",
        why="Batch and heads become one batch of independent products.",
    )
    return product_draft(problem, Product("", draw_precision(rng), SMALL, batched=True), rng)


def tensor_matmul(rng: random.Random) -> Draft:
    """A tensor of three or four dimensions by a matrix: one product of all its rows."""
    a, b = rng.choice((("A", "B"), ("A", "B"), ("x", "w"), ("x", "weight")))
    rank = rng.choice((3, 4))
    letters, leading, names = rng.choice(_TENSORS[rank])
    inner, outer = names.split()
    sizes = (
        *(Size(name, rng.choice(choices), rng.randint(3, 5)) for name, choices in leading),
        Size(inner, rng.choice((256, 384, 512, 768, 1024)), draw_cpu_size(rng, 33, 60)),
        Size(outer, rng.choice((256, 320, 512, 768, 1000)), draw_cpu_size(rng, 33, 70)),
    )
    text = rng.choice((f"torch.einsum('{letters}', {a}, {b})", f"torch.matmul({a}, {b})", f"{a} @ {b}"))
    drawn = rng.choice(("torch.rand", "torch.randn"))
    dims = ", ".join(size.name for size in sizes[:-1])
    module = Module(
        doc=rng.choice(("The last dimension of a tensor by a matrix.", f"A {rank}D tensor by a matrix.")),
        init_args=(),
        init_lines=(),
        forward_args=(a, b),
        forward_lines=(f"return {text}",),
        sizes=sizes,
        inputs=(f"{drawn}({dims})", f"{drawn}({inner}, {outer})"),
        init_inputs=(),
    )
    problem = Problem(
        family="tensor_matmul",
        operators=(f"matmul_{rank}d_2d",),
        module=module,
        style=upper_style(rng),
        setup=(f"K, N = {b}.shape", f"rows = {a}.reshape(-1, K)", "M = rows.shape[0]"),
        operands=Operands("rows", b),
        ending=(f"return C.view(*{a}.shape[:-1], N)",),
        why=f"The leading dimensions of {a} are only rows, so this is a single product with many of them.",
    )
    return product_draft(problem, Product("", draw_precision(rng), SMALL), rng)
