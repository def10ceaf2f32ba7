"""Families of products that move much and compute little: matrix by vector, diagonal matrix by matrix."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kernel_core.problems.graded import GradedKernel
from kernel_core.problems.modules.draft import Draft, Module, draft_sizes, kernel_source, reference_source
from kernel_core.problems.modules.matmul.flat import FLAT_LAUNCHES, function, warps_option
from kernel_core.problems.modules.matmul.products import upper_style
from kernel_core.problems.modules.style import Style
from kernel_core.problems.program import Size, draw_cpu_size

_ROWS = (
    (256, 262144),
    (1000, 50000),
    (512, 131072),
    (4096, 16384),
    (8192, 8192),
    (300, 200000),
    (1536, 65536),
)


def matrix_vector(rng: random.Random) -> Draft:
    """A matrix, or a batch of them, by a vector, which may be a column."""
    a, v = rng.choice((("A", "B"), ("A", "x"), ("A", "v"), ("matrix", "vector")))
    column = rng.random() < 0.5
    batched = rng.random() < 0.15
    sizes = _row_sizes(rng, batched)
    forms = [f"torch.matmul({a}, {v})", f"{a} @ {v}"]
    forms += [f"torch.mv({a}, {v})"] if not column and not batched else []
    drawn = rng.choice(("torch.rand", "torch.randn"))
    dims = ", ".join(size.name for size in sizes)
    module = _module(
        rng.choice(("A matrix by a vector.", "Matrix-vector product.")),
        (a, v),
        rng.choice(forms),
        sizes,
        (f"{drawn}({dims})", f"{drawn}(k, 1)" if column else f"{drawn}(k)"),
    )
    shape = f"(*{a}.shape[:-1], 1)" if column else f"{a}.shape[:-1]"
    name = rng.choice(("matvec_kernel", "gemv_kernel", "row_dot_kernel"))

    def source(block: int, warps: int, add: str = "+=") -> str:
        body = [
            "row = tl.program_id(0).to(tl.int64)",
            "acc = tl.zeros((BLOCK,), dtype=tl.float32)",
            "for start in range(0, K, BLOCK):",
            "    cols = start + tl.arange(0, BLOCK)",
            "    mask = cols < K",
            "    a = tl.load(a_ptr + row * K + cols, mask=mask, other=0.0)",
            "    x = tl.load(x_ptr + cols, mask=mask, other=0.0)",
            f"    acc {add} a * x",
            "tl.store(out_ptr + row, tl.sum(acc, axis=0))",
        ]
        host = [
            f"{a}, {v} = {a}.contiguous(), {v}.contiguous()",
            f"K = {a}.shape[-1]",
            f"out = torch.empty({shape}, device={a}.device, dtype={a}.dtype)",
            f"{name}[(out.numel(),)]({a}, {v}, out, K, BLOCK={block}{warps_option(warps)})",
            "return out",
        ]
        kernel = function(name, ["a_ptr", "x_ptr", "out_ptr", "K", "BLOCK: tl.constexpr"], body)
        return kernel_source(module, [kernel], host)

    thinking = rng.choice(
        (
            "The matrix is read once and that decides the time, so tensor cores would not help. "
            "One program sums one row in blocks and keeps a partial sum a lane.",
            "Each row is a dot product of K terms. A program walks along it with coalesced loads "
            "and reduces its lanes once at the end; the vector stays in the cache.",
        )
    )
    sources = [source(block, warps) for _, block, warps in FLAT_LAUNCHES]
    return _draft(
        "matrix_vector",
        ("matvec",),
        module,
        upper_style(rng),
        sources,
        thinking,
        ("no_sum", source(1024, 4, "=")),
    )


def _row_sizes(rng: random.Random, batched: bool) -> list[Size]:
    if batched:
        return [Size("batch_size", 16, 2), Size("m", 1024, 3), Size("k", rng.choice((4096, 5000)), 2101)]
    m, k = rng.choice(_ROWS)
    return [Size("m", m, draw_cpu_size(rng, 3, 7)), Size("k", k, draw_cpu_size(rng, 2100, 2400))]


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
    sizes = [Size("n", rng.choice(choices), draw_cpu_size(rng, 33, 60)),
             Size("m", rng.choice(choices), draw_cpu_size(rng, 33, 60))]  # fmt: skip
    drawn = rng.choice(("torch.rand", "torch.randn"))
    module = _module(
        rng.choice(("A diagonal matrix by a matrix.", "Scales a matrix by a diagonal.")),
        (d, b),
        rng.choice(forms if dense else short),
        sizes,
        (f"{drawn}(n)", f"{drawn}(n, m)" if left else f"{drawn}(m, n)"),
    )
    name = rng.choice(("diag_matmul_kernel", "diagonal_kernel", "scale_kernel"))
    index, other = ("offs // cols", "offs % cols") if left else ("offs % cols", "offs // cols")

    def source(block: int, warps: int, index: str = index) -> str:
        body = [
            "offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
            "mask = offs < n",
            f"d = tl.load(d_ptr + {index}, mask=mask, other=0.0)",
            "x = tl.load(x_ptr + offs, mask=mask, other=0.0)",
            "tl.store(out_ptr + offs, d * x, mask=mask)",
        ]
        host = [
            f"{d}, {b} = {d}.contiguous(), {b}.contiguous()",
            f"out = torch.empty_like({b})",
            "n = out.numel()",
            f"grid = (triton.cdiv(n, {block}),)",
            f"{name}[grid]({d}, {b}, out, n, {b}.shape[1], BLOCK={block}{warps_option(warps)})",
            "return out",
        ]
        kernel = function(name, ["d_ptr", "x_ptr", "out_ptr", "n", "cols", "BLOCK: tl.constexpr"], body)
        return kernel_source(module, [kernel], host)

    thinking = (
        f"A diagonal only scales {'rows' if left else 'columns'}, so the square matrix is never built: "
        f"{'n times less work' if dense else 'one pass over the matrix'}. "
        f"The kernel is flat, and `{index}` finds the entry of the diagonal."
    )
    clamped = f"({other}) % {'(n // cols)' if left else 'cols'}"
    sources = [source(block, warps) for _, block, warps in FLAT_LAUNCHES]
    operators = ("diag", "matmul") if dense else ("diag_mul",)
    fault = ("wrong_index", source(1024, 4, clamped))
    return _draft("diagonal_matmul", operators, module, upper_style(rng), sources, thinking, fault)


def _module(
    doc: str, arguments: tuple[str, str], text: str, sizes: Sequence[Size], inputs: tuple[str, ...]
) -> Module:
    return Module(
        doc=doc,
        init_args=(),
        init_lines=(),
        forward_args=arguments,
        forward_lines=(f"return {text}",),
        sizes=tuple(sizes),
        inputs=inputs,
        init_inputs=(),
    )


def _draft(
    family: str,
    operators: tuple[str, ...],
    module: Module,
    style: Style,
    sources: Sequence[str],
    thinking: str,
    fault: tuple[str, str],
) -> Draft:
    kernels = [
        GradedKernel(grade=grade, source=text, thinking=thinking)
        for (grade, _, _), text in zip(FLAT_LAUNCHES, sources, strict=True)
    ]
    kernels.append(GradedKernel(grade="mistake", fault=fault[0], source=fault[1], thinking=thinking))
    return Draft(
        family=family,
        operators=operators,
        reference=reference_source(module, style),
        sizes=draft_sizes(module, style),
        kernels=tuple(kernels),
    )
