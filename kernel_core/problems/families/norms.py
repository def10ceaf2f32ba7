"""Families around a normalisation: layer, RMS, group and instance norm."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from kernel_core.problems import rowwise
from kernel_core.problems.families.elementwise import chain, draw_vectors
from kernel_core.problems.frames import (
    WEIGHT_NAMES,
    draw_row_sizes,
    load,
    matrix_program,
    names_for,
    row_frame,
)
from kernel_core.problems.ops import ACTIVATIONS, binary
from kernel_core.problems.program import Argument, Program, Size, draw_cpu_size
from kernel_core.problems.steps import Step

Norm = tuple[tuple[Step, ...], tuple[Argument, ...]]
"""The steps of a norm and its vectors."""
DrawNorm = Callable[[random.Random, str, Sequence[str], str], Norm]
_EPSILONS = ("1e-5", "1e-6", "1e-3")


def layer_norm(rng: random.Random) -> Program:
    """Layer norm with weight and bias, and an activation."""
    return _around(rng, "layer_norm", draw_layer_norm)


def rms_norm(rng: random.Random) -> Program:
    """RMS norm written out, with a weight, and an activation."""
    return _around(rng, "rms_norm", draw_rms_norm)


def _around(rng: random.Random, family: str, draw: DrawNorm) -> Program:
    (x,), sizes = names_for(rng, 1), draw_row_sizes(rng)
    norm, vectors = draw(rng, x, (x,), sizes[1].name)
    steps = (*chain(rng, x, rng.randint(0, 2)), *norm, *chain(rng, x, rng.randint(1, 2), ACTIVATIONS))
    return matrix_program(family, x, sizes, steps, *vectors)


def group_norm(rng: random.Random) -> Program:
    """Group or instance norm of `[batch, channels, length]` between two chains."""
    (x,) = names_for(rng, 1)
    groups = rng.choice((2, 3, 4))
    instance = rng.random() < 0.4
    channels = groups * rng.choice((8, 16, 32))
    length = rng.choice((256, 300, 500, 512)) if not instance else rng.choice((1024, 2000, 4096))
    names = rng.choice((("B", "C", "L"), ("N", "C", "T"), ("batch_size", "channels", "length")))
    sizes = (
        Size(names[0], rng.choice((64, 128, 256)), 2),
        Size(names[1], channels, groups * (1 if instance else rng.choice((2, 3)))),
        Size(names[2], length, draw_cpu_size(rng, 18, 45)),
    )
    norm = f"F.instance_norm({x})" if instance else f"F.group_norm({x}, {groups})"
    rows = f"{x}.shape[0] * {x}.shape[1]" if instance else f"{x}.shape[0] * {groups}"
    step = rowwise.standardise(x, f"{x} = {norm}", "instance_norm" if instance else f"group_norm {groups}")
    setup = (f"rows = {rows}", f"cols = {x}.numel() // rows")
    cols = length if instance else channels // groups * length
    frame = row_frame(x, setup, f"torch.empty_like({x})", cols=cols)
    steps = (*chain(rng, x, rng.randint(0, 2)), step, *chain(rng, x, rng.randint(1, 3)))
    return Program("group_norm", x, (Argument(x, names),), sizes, frame, load(x), steps)


def draw_layer_norm(rng: random.Random, v: str, taken: Sequence[str], cols: str) -> Norm:
    """The steps of a layer norm on `v`, and its weight and bias."""
    bias, weight = draw_vectors(rng, taken, 2, cols)
    return rowwise.layer_norm(v, weight.name, bias.name, parameter=weight.parameter), (weight, bias)


def draw_rms_norm(rng: random.Random, v: str, taken: Sequence[str], cols: str) -> Norm:
    """The steps of an RMS norm on `v`, and its weight."""
    weight = Argument(
        rng.choice([name for name in WEIGHT_NAMES if name not in taken]),
        (cols,),
        parameter=rng.random() < 0.5,
    )
    norm = rowwise.rms_norm(v, -1, rng.choice(_EPSILONS))
    return (norm, binary("*", v, weight.name, "vector", torch_argument=weight.in_forward)), (weight,)
