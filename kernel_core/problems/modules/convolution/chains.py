"""Families of chains: a convolution, then elementwise operators, norms, reductions or pools."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kernel_core.problems.modules.convolution.chain_draw import Chain, draw_chain
from kernel_core.problems.modules.convolution.geometry import Geometry, draw_geometry
from kernel_core.problems.modules.convolution.tail_ops import Kind, Op
from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.style import draw_style, with_named_steps
from kernel_core.problems.program import dims_of


def chained(rng: random.Random, family: str) -> Draft:
    """Operators behind a convolution, of which the family's kind is one."""
    rank = rng.choice((2, 2, 3))
    geometry = draw_geometry(rng, rank, transposed=rng.random() < 0.4, plain=True)
    chain = draw_chain(rng, family, rank)
    ops = chain.ops
    geometry = _with_known_width(geometry, {op.kind for op in ops})
    geometry = _divisible(geometry, ops)
    if chain.front is not None and {op.kind for op in ops} & {"second", "layer_norm"}:
        chain = replace(chain, front=None)  # the output's width would not follow from the problem's sizes
    if chain.front is not None:
        geometry = _pooled_before(geometry, chain.front)
    module = _module(geometry, chain, rng)
    operator = f"conv_transpose{rank}d" if geometry.transposed else f"conv{rank}d"
    before = [chain.front.operator] if chain.front else []
    operators = [*before, operator, *(op.operator for op in ops if op.operator)]
    return module.draft(operators, draw_style(rng))


def _with_known_width(geometry: Geometry, kinds: set[Kind]) -> Geometry:
    """An output width that the problem's text can state, where a norm or a second input needs it."""
    if "second" in kinds and "layer_norm" not in kinds and geometry.transposed and min(geometry.stride) > 1:
        return _widened(geometry, 2)
    return _widened(geometry, 1) if kinds & {"second", "layer_norm"} else geometry


def _widened(geometry: Geometry, factor: int) -> Geometry:
    """The convolution with an output once or (transposed) twice as wide as its input."""
    ones = (1,) * geometry.rank
    extra = (factor - 1,) * geometry.rank
    stride = (factor,) * geometry.rank
    return replace(geometry, kernel=(3,) * geometry.rank, stride=stride, padding=ones, output_padding=extra)


def _pooled_before(geometry: Geometry, pool: Op) -> Geometry:
    """The input as much larger on the CPU as the pool makes it smaller."""
    spatial = tuple(
        replace(size, cpu=size.cpu * extent + 1)
        for size, extent in zip(geometry.spatial, pool.window, strict=True)
    )
    return replace(geometry, spatial=spatial)


def _divisible(geometry: Geometry, ops: Sequence[Op]) -> Geometry:
    groups = max((int(op.settings[0][1]) for op in ops if op.kind == "group_norm"), default=0)
    small = replace(geometry.out_channels, cpu=3 * groups) if groups else geometry.out_channels
    return replace(geometry, out_channels=small)


def _module(geometry: Geometry, chain: Chain, rng: random.Random) -> Module:
    rank = geometry.rank
    attribute = "conv_transpose" if geometry.transposed else "conv"
    attribute = rng.choice((attribute, attribute, f"{attribute}{rank}d", f"{attribute}{rank}d", "layer"))
    values = [
        ("kernel_size", geometry.kernel, 0),
        ("stride", geometry.stride, 1),
        ("padding", geometry.padding, 0),
    ]
    if geometry.transposed:
        values.append(("output_padding", geometry.output_padding, 0))
    given = [
        (name, str(value if len(set(value)) > 1 else value[0]))
        for name, value, default in values
        if name == "kernel_size" or set(value) != {default}
    ]
    in_order = [name for name, _ in given] == [name for name, _, _ in values][: len(given)]
    keyword = "" if in_order and rng.random() < 0.3 else "{0}="
    options = "".join(f", {keyword.format(name)}{name}" for name, _ in given[1:])
    options += ", bias=False" if rng.random() < 0.3 else ""
    form = "ConvTranspose" if geometry.transposed else "Conv"
    layer = f"self.{attribute} = nn.{form}{rank}d(in_channels, out_channels, kernel_size{options})"
    settings = [*given, *[pair for op in chain.all_ops for pair in op.settings]]
    if any(op.kind == "layer_norm" for op in chain.ops):
        settings.append(("norm_size", "width"))
    arguments = [name for name, _ in given] + [name for op in chain.all_ops for name in op.init_args]
    x = dims_of((geometry.batch, geometry.in_channels, *geometry.spatial))
    second = tuple(op.attribute for op in chain.ops if op.kind == "second")
    factor = " * 2" if geometry.transposed and geometry.stride[0] == 2 else ""
    outputs = ", ".join(f"{size.name}{factor}" for size in geometry.spatial)
    random_call = f"torch.{rng.choice(('rand', 'randn'))}"
    steps = [line for op in chain.ops for line in op.torch]
    first = chain.front.torch if chain.front else ()
    front_lines = chain.front.init_lines if chain.front else ()
    return Module(
        doc=_doc(geometry, chain, rng),
        init_args=("in_channels", "out_channels", *arguments),
        init_lines=(*front_lines, layer, *[line for op in chain.ops for line in op.init_lines]),
        forward_args=("x", *second),
        forward_lines=with_named_steps((*first, f"x = self.{attribute}(x)", *steps, "return x"), rng),
        sizes=(geometry.batch, geometry.in_channels, geometry.out_channels, *geometry.spatial),
        inputs=(
            f"{random_call}({x})",
            *[f"{random_call}(batch_size, out_channels, {outputs})" for _ in second],
        ),
        init_inputs=("in_channels", "out_channels", *arguments),
        constants=tuple(settings),
    )


def _doc(geometry: Geometry, chain: Chain, rng: random.Random) -> str:
    names = [op.operator.replace("_", " ") for op in chain.ops if op.operator]
    first = f"{'Transposed ' if geometry.transposed else ''}{geometry.rank}D convolution"
    if chain.front is not None:
        first = f"{chain.front.detail.capitalize()} pool, {first[0].lower()}{first[1:]}"
    return rng.choice(
        (
            f"{first} followed by {', '.join(names)}.",
            f"{first}, then {len(names)} further operations.",
            f"A block: {first.lower()} > {' > '.join(names)}.",
        )
    )
