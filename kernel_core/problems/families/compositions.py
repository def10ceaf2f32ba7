"""Held-out families: each joins two parts that trained families show apart and never together."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kernel_core.problems import rowwise
from kernel_core.problems.families.elementwise import chain, draw_vectors
from kernel_core.problems.families.gathers import draw_gate, draw_look_up
from kernel_core.problems.families.norms import Norm, draw_layer_norm, draw_rms_norm
from kernel_core.problems.families.rows import draw_softmax_scale
from kernel_core.problems.frames import draw_row_sizes, matrix_program, names_for
from kernel_core.problems.ops import ACTIVATIONS, binary
from kernel_core.problems.program import Argument, Program


def bias_softmax(rng: random.Random) -> Program:
    """Softmax (from `softmax`) of a row with a vector added (from `bias_activation`)."""
    (x,), sizes = names_for(rng, 1), draw_row_sizes(rng)
    (bias,) = draw_vectors(rng, (x,), 1, sizes[1].name)
    steps = (
        *chain(rng, x, rng.randint(0, 1)),
        binary("+", x, bias.name, "vector", torch_argument=bias.in_forward),
        *chain(rng, x, rng.randint(0, 1), ACTIVATIONS),
        rowwise.softmax(x, -1),
        draw_softmax_scale(rng, x),
    )
    return matrix_program("bias_softmax", x, sizes, steps, bias)


def residual_norm(rng: random.Random) -> Program:
    """A norm (from `layer_norm` and `rms_norm`) of the sum of two tensors (from `binary_chain`)."""
    (x, y), sizes = names_for(rng, 2), draw_row_sizes(rng)
    norm, vectors = _draw_norm(rng, x, (x, y), sizes[1].name)
    before, after = chain(rng, x, rng.randint(0, 1)), chain(rng, x, 1, ACTIVATIONS)
    steps = (*before, binary("+", x, y, "full"), *norm, *after)
    second = Argument(y, (sizes[0].name, sizes[1].name))
    return matrix_program("residual_norm", x, sizes, steps, second, *vectors)


def embedding_norm(rng: random.Random) -> Program:
    """A norm (from `layer_norm` and `rms_norm`) of looked-up rows (from `embedding`)."""
    (v,) = names_for(rng, 1)
    arguments, sizes, frame, opening = draw_look_up(rng, v)
    norm, vectors = _draw_norm(rng, v, (v, *(argument.name for argument in arguments)), sizes[-1].name)
    steps = (*chain(rng, v, rng.randint(0, 1)), *norm, *chain(rng, v, rng.randint(1, 2), ACTIVATIONS))
    return Program("embedding_norm", v, (*arguments, *vectors), sizes, frame, opening, steps)


def gated_norm(rng: random.Random) -> Program:
    """An RMS norm (from `rms_norm`), without its weight, of one half gated by the other (from `gated`)."""
    x, a, b = names_for(rng, 3)
    sizes, frame, opening, gate = draw_gate(rng, x, a, b)
    argument = Argument(x, (sizes[0].name, sizes[1].name))
    norm = rowwise.rms_norm(a, -1, rng.choice(("1e-5", "1e-6", "1e-3")))
    steps = (*gate, norm, *chain(rng, a, rng.randint(1, 2)))
    return Program("gated_norm", a, (argument,), sizes, frame, opening, steps)


def _draw_norm(rng: random.Random, v: str, taken: Sequence[str], cols: str) -> Norm:
    return (draw_layer_norm if rng.random() < 0.5 else draw_rms_norm)(rng, v, taken, cols)
