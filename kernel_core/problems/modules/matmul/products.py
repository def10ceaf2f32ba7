"""Families of products of two matrices: all shapes, transposed operands, triangular ones."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.style import Style, draw_style
from kernel_core.problems.program import Size, draw_cpu_size

_SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "rectangular": {
        "m": (1024, 1536, 2048, 3072, 6144),
        "k": (1024, 2048, 2560, 4096, 5120),
        "n": (1024, 1536, 3072, 5120, 8192),
    },
    "large_k": {
        "m": (128, 192, 320, 384, 512),
        "k": (65536, 100000, 131072, 200000),
        "n": (128, 160, 320, 448, 512),
    },
    "small_k": {"m": (6144, 8192, 10000), "k": (16, 24, 32, 48, 64, 96), "n": (6144, 8000, 9216)},
    "irregular": {
        "m": (1537, 3001, 4099, 2777, 6003),
        "k": (1111, 2053, 3331, 1999),
        "n": (1999, 2501, 4507, 3037),
    },
    "tall": {"m": (20000, 65536, 100000), "k": (512, 1000, 1024, 2048), "n": (16, 24, 32, 48, 64)},
    "wide": {"m": (16, 24, 32, 64), "k": (512, 1024, 1500), "n": (20000, 50000, 65536)},
}
_SQUARES = (1536, 2048, 2560, 3000, 3072, 3584, 5120, 6000)
_WORDS = {
    "square": "square matrices",
    "rectangular": "two matrices",
    "large_k": "matrices that share a long dimension",
    "small_k": "matrices that share a short dimension",
    "irregular": "matrices of irregular sizes",
    "tall": "a tall and a small matrix",
    "wide": "a small and a wide matrix",
    "symmetric": "symmetric matrices",
}
_DOCS = ("The product of {}.", "Multiplies {}.", "Matrix product of {}.")
OPERANDS = (("A", "B"), ("A", "B"), ("A", "B"), ("x", "y"), ("a", "b"), ("lhs", "rhs"))


@dataclass(frozen=True)
class Layout:
    """The operands that are given transposed."""

    a: bool = False
    b: bool = False


_LAYOUTS = (Layout(True), Layout(False, True), Layout(True, True))


def _draw_sizes(rng: random.Random, shape: str) -> tuple[Size, ...]:
    """The sizes M, K and N of a shape; a square matrix has N alone."""
    if shape in ("square", "symmetric"):
        return (Size("n", rng.choice(_SQUARES), draw_cpu_size(rng, 33, 75)),)
    return tuple(
        Size(name, rng.choice(choices), draw_cpu_size(rng, 33, 75))
        for name, choices in _SHAPES[shape].items()
    )


def transposed(rng: random.Random, name: str, batch: bool = False) -> str:
    """The operand with its last two dimensions swapped."""
    if batch:
        return rng.choice((f"{name}.transpose(1, 2)", f"{name}.transpose(-2, -1)"))
    return rng.choice((f"{name}.T", f"{name}.T", f"{name}.t()", f"{name}.transpose(0, 1)"))


def _written(rng: random.Random, a: str, b: str, layout: Layout) -> str:
    """A product of two matrices as an expression of torch."""
    if rng.random() < 0.1:
        left, right = ("km" if layout.a else "mk"), ("nk" if layout.b else "kn")
        return f"torch.einsum('{left},{right}->mn', {a}, {b})"
    left = transposed(rng, a) if layout.a else a
    right = transposed(rng, b) if layout.b else b
    return rng.choice((
        f"torch.matmul({left}, {right})", f"torch.matmul({left}, {right})",
        f"{left} @ {right}", f"torch.mm({left}, {right})",
    ))  # fmt: skip


def upper_style(rng: random.Random) -> Style:
    """A style in which sizes are mostly capitals, as matrices have them."""
    style = draw_style(rng)
    return replace(style, upper_sizes=style.upper_sizes or rng.random() < 0.6)


def matmul(rng: random.Random) -> Draft:
    """Square, rectangular, irregular, tall, wide and symmetric matrices, none transposed."""
    shapes = ("square", "rectangular", "irregular", "tall", "wide", "small_k", "symmetric")
    shape = rng.choices(shapes, (3, 3, 3, 2, 1, 3, 2))[0]
    return _plain(shape, Layout(), rng)


def matmul_transposed(rng: random.Random) -> Draft:
    """One operand or both given transposed."""
    shape = rng.choice(("square", "rectangular", "rectangular", "irregular", "tall", "small_k"))
    return _plain(shape, rng.choice(_LAYOUTS), rng)


def matmul_large_k(rng: random.Random) -> Draft:
    """A long shared dimension and a small output."""
    return _plain("large_k", rng.choice((Layout(), Layout(), *_LAYOUTS)), rng)


def matmul_triangular(rng: random.Random) -> Draft:
    """Upper or lower triangular operands."""
    cut, word = ("triu", "upper") if rng.random() < 0.5 else ("tril", "lower")
    a, b = rng.choice(OPERANDS)
    return Module(
        doc=rng.choice(_DOCS).format(f"{word} triangular matrices"),
        forward_args=(a, b),
        forward_lines=(f"return torch.{cut}({_written(rng, a, b, Layout())})",),
        sizes=_draw_sizes(rng, "square"),
        inputs=(a, b),
        input_lines=tuple(f"{x} = torch.{cut}(torch.{rng.choice(('rand', 'randn'))}(n, n))" for x in (a, b)),
    ).draft((f"matmul_{cut}",), upper_style(rng))


def _plain(shape: str, layout: Layout, rng: random.Random) -> Draft:
    a, b = rng.choice(OPERANDS)
    m, k, n = ("n", "n", "n") if shape in ("square", "symmetric") else ("m", "k", "n")
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
    module = Module(
        doc=rng.choice(_DOCS).format(_WORDS[shape] + (f", {both}" if both else "")),
        forward_args=(a, b),
        forward_lines=(f"return {_written(rng, a, b, layout)}",),
        sizes=_draw_sizes(rng, shape),
        inputs=(a, b) if symmetric else inputs,
        input_lines=lines if symmetric else (),
    )
    name = "matmul" + ("_ta" if layout.a else "") + ("_tb" if layout.b else "")
    return module.draft((name,), upper_style(rng))
