"""Families of products of other ranks: batches, tensors by a matrix, matrix by vector, diagonal matrices."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.matmul.products import OPERANDS, transposed, upper_style
from kernel_core.problems.program import Size, dims_of, draw_cpu_size

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
_ROWS = (
    (256, 262144),
    (1000, 50000),
    (512, 131072),
    (4096, 16384),
    (8192, 8192),
    (300, 200000),
    (1536, 65536),
)


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
    return Module(
        doc=rng.choice(("A batch of matrix products.", "Multiplies the matrices of two batches pairwise.")),
        forward_args=(a, b),
        forward_lines=(f"return {text}",),
        sizes=sizes,
        inputs=(f"{drawn}(batch_size, m, k)", f"{drawn}(batch_size, {'n, k' if turned else 'k, n'})"),
    ).draft(("bmm_tb" if turned else "bmm",), upper_style(rng))


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
    return Module(
        doc="Matrix products over a batch and its heads.",
        forward_args=(a, b),
        forward_lines=(f"return {rng.choice(('torch.matmul({}, {})', '{} @ {}')).format(a, right)}",),
        sizes=sizes,
        inputs=(first, f"torch.randn({lead}, {length}, {width})"),
    ).draft(("matmul_4d_tb" if scores else "matmul_4d",), upper_style(rng))


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
    dims = dims_of(sizes[:-1])
    return Module(
        doc=rng.choice(("The last dimension of a tensor by a matrix.", f"A {rank}D tensor by a matrix.")),
        forward_args=(a, b),
        forward_lines=(f"return {text}",),
        sizes=sizes,
        inputs=(f"{drawn}({dims})", f"{drawn}({inner}, {outer})"),
    ).draft((f"matmul_{rank}d_2d",), upper_style(rng))


def matrix_vector(rng: random.Random) -> Draft:
    """A matrix, or a batch of them, by a vector, which may be a column."""
    a, v = rng.choice((("A", "B"), ("A", "x"), ("A", "v"), ("matrix", "vector")))
    column = rng.random() < 0.5
    batched = rng.random() < 0.15
    sizes = _row_sizes(rng, batched)
    forms = [f"torch.matmul({a}, {v})", f"{a} @ {v}"]
    forms += [f"torch.mv({a}, {v})"] if not column and not batched else []
    drawn = rng.choice(("torch.rand", "torch.randn"))
    dims = dims_of(sizes)
    return Module(
        doc=rng.choice(("A matrix by a vector.", "Matrix-vector product.")),
        forward_args=(a, v),
        forward_lines=(f"return {rng.choice(forms)}",),
        sizes=sizes,
        inputs=(f"{drawn}({dims})", f"{drawn}(k, 1)" if column else f"{drawn}(k)"),
    ).draft(("matvec",), upper_style(rng))


def _row_sizes(rng: random.Random, batched: bool) -> tuple[Size, ...]:
    if batched:
        return Size("batch_size", 16, 2), Size("m", 1024, 3), Size("k", rng.choice((4096, 5000)), 2101)
    m, k = rng.choice(_ROWS)
    return Size("m", m, draw_cpu_size(rng, 3, 7)), Size("k", k, draw_cpu_size(rng, 2100, 2400))


def diagonal_matmul(rng: random.Random) -> Draft:
    """A diagonal matrix, given as a vector, by a matrix from the left or from the right."""
    d, b = rng.choice((("A", "B"), ("A", "B"), ("d", "x"), ("diagonal", "matrix")))
    left = rng.random() < 0.7
    dense = rng.random() < 0.5
    if left:
        forms = (f"torch.diag({d}) @ {b}", f"torch.matmul(torch.diag({d}), {b})")
        short = (f"{d}.unsqueeze(1) * {b}", f"{d}[:, None] * {b}", f"{b} * {d}.view(-1, 1)")
    else:
        forms = (f"{b} @ torch.diag({d})", f"torch.matmul({b}, torch.diag({d}))")
        short = (f"{b} * {d}", f"{b} * {d}.unsqueeze(0)", f"{b} * {d}[None, :]")
    choices = (2048, 2560, 3000, 3584, 5000) if dense else (3000, 5120, 6144, 8192, 10000)
    sizes = tuple(Size(name, rng.choice(choices), draw_cpu_size(rng, 33, 60)) for name in ("n", "m"))
    drawn = rng.choice(("torch.rand", "torch.randn"))
    module = Module(
        doc=rng.choice(("A diagonal matrix by a matrix.", "Scales a matrix by a diagonal.")),
        forward_args=(d, b),
        forward_lines=(f"return {rng.choice(forms if dense else short)}",),
        sizes=sizes,
        inputs=(f"{drawn}(n)", f"{drawn}(n, m)" if left else f"{drawn}(m, n)"),
    )
    operators = ("diag", "matmul") if dense else ("diag_mul",)
    return module.draft(operators, upper_style(rng))
