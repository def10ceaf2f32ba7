"""Families of elementwise chains over any rank: further inputs, parameters of channels, a number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.matmul import chains, operations
from kernel_core.problems.modules.matmul.shapes import draw_shape
from kernel_core.problems.modules.probe import worth_computing
from kernel_core.problems.modules.steps import Step, is_visible, joined, listed, operators, values
from kernel_core.problems.modules.style import draw_style
from kernel_core.problems.program import Size, dims_of, draw_cpu_size


def elementwise_chain(rng: random.Random) -> Draft:
    """Two to four elementwise operators in a row."""
    steps = chains.draw_chain(rng, rng.randint(2, 4), "", set(), vectors=False)
    return _draft(steps, draw_shape(rng), rng)


def tensor_pair(rng: random.Random) -> Draft:
    """Two or three inputs of one shape, combined, with an activation before or after."""
    while True:
        taken: set[str] = set()
        steps = [operations.second_input(rng, taken)]
        if rng.random() < 0.7:
            steps.insert(rng.randint(0, 1), operations.activation(rng, taken))
        if rng.random() < 0.3:
            steps.append(operations.second_input(rng, taken))
        elif rng.random() < 0.4:
            steps.append(operations.number(rng, taken))
        if worth_computing(values(steps)):
            return _draft(steps, draw_shape(rng), rng)


def channel_parameter(rng: random.Random) -> Draft:
    """A bias or scale with one value a channel, of shape (C, 1, 1), and up to two further operators."""
    rank = rng.choice((3, 4, 4, 5))
    sizes = _feature_map(rng, rank)
    length = ("1, " if rng.random() < 0.3 else "") + "channels" + ", 1" * (rank - 2)
    return _with_vector(length, sizes, rng)


def feature_parameter(rng: random.Random) -> Draft:
    """A bias or scale with one value for each entry of the last dimension, and up to two operators more."""
    sizes = draw_shape(rng, rng.choice((2, 2, 3)), huge=False)
    return _with_vector(sizes[-1].name, sizes, rng)


def _with_vector(length: str, sizes: tuple[Size, ...], rng: random.Random) -> Draft:
    while True:
        taken = {size.name for size in sizes}
        steps = [operations.vector(rng, taken, length)]
        for _ in range(rng.randint(0, 2)):
            make = rng.choice((operations.activation, operations.activation, operations.number))
            steps.insert(rng.randint(0, len(steps)), make(rng, taken))
        if rng.random() < 0.25:
            steps.append(operations.vector(rng, taken, length))
        if worth_computing(values(steps)):
            break
    by_size = any(step.vectors and not step.init_args for step in steps)
    leading = (length.replace("1, ", "").split(",")[0],) if by_size else ()
    return _draft(steps, sizes, rng, leading)


def scalar_product(rng: random.Random) -> Draft:
    """A matrix and a number, which `forward` takes."""
    name = rng.choice(("s", "scale", "alpha", "value"))
    kind, sign = rng.choice((("mul", "*"), ("mul", "*"), ("add", "+"), ("div", "/")))
    sizes = draw_shape(rng, rng.choice((2, 2, 2, 3)))
    first = rng.choice(("A", "x", "matrix"))
    random_values = rng.choice(("torch.randn", "torch.rand"))
    return Module(
        doc=rng.choice(("A tensor combined with one number.", "Arithmetic of a matrix and a scalar.")),
        forward_args=(first, name),
        forward_lines=(f"return {first} {sign} {name}",),
        sizes=sizes,
        inputs=(f"{random_values}({dims_of(sizes)})", rng.choice(("2.5", "0.35", "1.7", "4.2"))),
    ).draft((kind,), replace(draw_style(rng), annotations=False))


def _feature_map(rng: random.Random, rank: int) -> tuple[Size, ...]:
    spatial = {
        3: (("length", (512, 1000, 4096, 8000)),),
        4: (("height", (56, 64, 112, 128, 200)), ("width", (56, 64, 112, 128, 200))),
        5: (("depth", (8, 16, 20)), ("height", (32, 56, 64)), ("width", (32, 56, 64))),
    }[rank]
    return (
        Size("batch_size", rng.choice((16, 32, 64)), rng.randint(2, 3)),
        Size("channels", rng.choice((16, 32, 48, 64, 96)), draw_cpu_size(rng, 3, 7)),
        *(Size(name, rng.choice(choices), draw_cpu_size(rng, 3, 7)) for name, choices in spatial),
    )


def _draft(
    steps: Sequence[Step],
    sizes: tuple[Size, ...],
    rng: random.Random,
    leading: tuple[str, ...] = (),
) -> Draft:
    """The problem of a chain; `leading` are the constructor's arguments before those of the steps."""
    is_uniform = rng.random() < 0.4 and is_visible(steps, uniform=True)
    is_uniform = is_uniform and worth_computing(values(steps, uniform=True))
    drawn = f"torch.{'rand' if is_uniform else 'randn'}({dims_of(sizes)})"
    chain = joined(steps)
    words = listed([step.phrase for step in steps if step.operator])
    arguments = (*leading, *chain.init_args)
    return Module(
        doc=rng.choice(("Elementwise: {}.", "Applies {} to a tensor.", "A chain of {}.")).format(words),
        init_args=arguments,
        init_lines=chain.init_lines,
        forward_args=("x", *chain.inputs),
        forward_lines=(*chain.torch, "return x"),
        sizes=sizes,
        inputs=(drawn,) * (1 + len(chain.inputs)),
        init_inputs=arguments,
        constants=chain.constants,
    ).draft(operators(steps), draw_style(rng))
