"""Shapes and layouts of matrix products, and the ways in which people write them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.program import Size, draw_cpu_size

SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
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
SQUARES = (1536, 2048, 2560, 3000, 3072, 3584, 5120, 6000)
WORDS = {
    "square": "square matrices",
    "rectangular": "two matrices",
    "large_k": "matrices that share a long dimension",
    "small_k": "matrices that share a short dimension",
    "irregular": "matrices of irregular sizes",
    "tall": "a tall and a small matrix",
    "wide": "a small and a wide matrix",
    "symmetric": "symmetric matrices",
}
REMARKS = {
    "large_k": "K is long and the output small.",
    "small_k": "K is so short that writing the output decides.",
    "irregular": "No size is a multiple of a block, so masks guard all three.",
    "tall": "The output has few columns, so reading A decides.",
    "wide": "The output has few rows, so reading B decides.",
    "symmetric": "Symmetry saves a tiled product nothing.",
}
OPERANDS = (("A", "B"), ("A", "B"), ("A", "B"), ("x", "y"), ("a", "b"), ("lhs", "rhs"))


@dataclass(frozen=True)
class Layout:
    """Whether an operand is given transposed."""

    a: bool = False
    b: bool = False


LAYOUTS = (Layout(True), Layout(False, True), Layout(True, True))


def draw_sizes(rng: random.Random, shape: str) -> tuple[Size, ...]:
    """The sizes M, K and N of a shape; a square matrix has N alone."""
    if shape in ("square", "symmetric"):
        return (Size("n", rng.choice(SQUARES), draw_cpu_size(rng, 33, 75)),)
    return tuple(
        Size(name, rng.choice(choices), draw_cpu_size(rng, 33, 75)) for name, choices in SHAPES[shape].items()
    )


def names_of(shape: str) -> tuple[str, str, str]:
    """The size names of M, K and N."""
    return ("n", "n", "n") if shape in ("square", "symmetric") else ("m", "k", "n")


def transposed(rng: random.Random, name: str, batch: bool = False) -> str:
    """The operand with its last two dimensions swapped."""
    if batch:
        return rng.choice((f"{name}.transpose(1, 2)", f"{name}.transpose(-2, -1)"))
    return rng.choice((f"{name}.T", f"{name}.T", f"{name}.t()", f"{name}.transpose(0, 1)"))


def written(rng: random.Random, a: str, b: str, layout: Layout) -> str:
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
