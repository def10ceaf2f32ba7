"""Families of a linear layer with an elementwise chain behind it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kernel_core.problems.graded import Grade
from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.matmul import chains, operations
from kernel_core.problems.modules.matmul.flat import flat_kernel, flat_launch
from kernel_core.problems.modules.matmul.gemm import (
    TF32,
    Operands,
    Product,
    Tile,
    draw_precision,
    product_kernel,
    product_launch,
)
from kernel_core.problems.modules.matmul.linear import (
    KERNEL_NAMES,
    Linear,
    Tail,
    Version,
    draw_linear,
    linear_draft,
    linear_module,
    why_fused,
)
from kernel_core.problems.modules.matmul.steps import (
    Loads,
    Step,
    broken,
    pointers,
    scalar_names,
    scalar_values,
    tensors,
    tile_lines,
)

_EPILOGUE = Loads(
    vector="tl.load({name}_ptr + rn, mask=rn < N, other=0.0)[None, :]",
    full="tl.load({name}_ptr + rm[:, None] * N + rn[None, :], mask=mask, other=0.0)",
)


def linear_elementwise(rng: random.Random) -> Draft:
    """A linear layer, then one to five elementwise operators with constants and parameters."""
    linear = draw_linear(rng)
    while True:
        taken = {linear.inputs, linear.outputs}
        steps = chains.draw_chain(
            rng, rng.choices((1, 2, 3, 4, 5), (1, 3, 4, 3, 2))[0], linear.outputs, taken
        )
        if rng.random() < 0.1:
            steps.append(operations.second_input(rng, taken))
        fault = broken(steps, rng, chains.LINEAR_SPREAD)
        if fault is not None:
            break
    tail = Tail(tuple(steps))
    module = linear_module(linear, tail, rng)
    name = rng.choice(KERNEL_NAMES)
    why = why_fused(tail, rng)
    versions = [
        flat_version(
            "naive", linear, steps, name, 256, "A flat kernel behind torch's product, in small blocks."
        ),
        flat_version("fused", linear, steps, name, 1024, f"{why} It is flat over all elements."),
        _product_version(linear, steps, rng),
        replace(flat_version("mistake", linear, fault[1], name, 1024, why), fault=fault[0]),
    ]
    return linear_draft("linear_elementwise", linear, tail, module, versions, rng)


def flat_version(
    grade: Grade, linear: Linear, steps: Sequence[Step], name: str, block: int, thinking: str
) -> Version:
    """Torch's product and a flat kernel."""
    further = [f"{other} = {other}.contiguous()" for other in chains.further_inputs(steps)]
    host = (linear.torch, *further, *flat_launch(name, steps, block), "return out")
    return Version(grade, (flat_kernel(name, steps),), host, thinking)


def epilogue_product(linear: Linear, steps: Sequence[Step], name: str, precision: str, tile: Tile) -> Product:
    """The product's kernel with the chain on its accumulator."""
    first = "x = acc"
    bias: tuple[str, ...] = ()
    if linear.bias:
        first = "x = acc + tl.load(b_ptr + rn, mask=rn < N, other=0.0)[None, :]"
        bias = ("b_ptr",)
    return Product(
        name,
        precision,
        tile,
        a="a",
        b="w",
        pointers=(*bias, *pointers(steps)),
        scalars=tuple(scalar_names(steps)),
        epilogue=(first, *tile_lines(steps, _EPILOGUE)),
        result="x",
    )


def epilogue_launch(linear: Linear, steps: Sequence[Step], one: Product, out: str = "out") -> list[str]:
    """The host's lines for `epilogue_product`, from `x` to the output."""
    bias = [linear.bias] if linear.bias else []
    return [
        f"w = {linear.weight}",
        "M, K = x.shape",
        "N = w.shape[0]",
        f"{out} = torch.empty((M, N), device=x.device, dtype=x.dtype)",
        *product_launch(
            one,
            Operands("x", "w", strides_b=("1", "0")),
            tensors=[*bias, *tensors(steps)],
            scalars=scalar_values(steps),
            out=out,
        ),
    ]


def _product_version(linear: Linear, steps: Sequence[Step], rng: random.Random) -> Version:
    precision = draw_precision(rng)
    tile = Tile(128, 128, 32, 8, 3) if precision == TF32 else Tile(64, 128, 32, 4, 3)
    if rng.random() < 0.3:
        tile = replace(tile, autotuned=True)
    one = epilogue_product(linear, steps, rng.choice(("linear_kernel", "gemm_kernel")), precision, tile)
    further = [f"{other} = {other}.contiguous()" for other in chains.further_inputs(steps)]
    exact = "Tensor cores in TF32 do the product" if precision == TF32 else "The product is full float32"
    thinking = (
        f"{exact}, and the accumulator takes the whole chain before it is stored, so the output is written "
        "once and never read. The weight is read as its transpose through its strides."
    )
    host = (*further, *epilogue_launch(linear, steps, one), "return out")
    return Version("tuned", (product_kernel(one),), host, thinking)
