"""Level-2-like problems: a product, a convolution, a reduction or a norm, and what follows it pointwise."""

from __future__ import annotations

from collections.abc import Callable

from kernel_core.generator.draw.choice import single
from kernel_core.generator.draw.forms import forms
from kernel_core.generator.draw.heads import (
    convolution,
    linear,
    normalised,
    pooled,
    prelude,
    product,
    reduction,
)
from kernel_core.generator.draw.inputs import broadcast_shapes, inputs_of
from kernel_core.generator.draw.singles import call
from kernel_core.generator.draw.sketch import Sketch, Tensor
from kernel_core.generator.draw.steps import Step, activated, joined_with, pointwise_step
from kernel_core.generator.draw.views import formula


def chain(sketch: Sketch, head: Step | Callable[[Sketch], Tensor]) -> list[Tensor]:
    """Draw a head and one to six steps; up to two of them are norms, pools or reductions."""
    x = head(sketch)  # type: ignore[call-arg]
    first = x
    others = sketch.pick(0, 1, 1, 1, 2)
    for _ in range(sketch.pick(0, 1, 1, 2) if others else sketch.pick(1, 2, 2, 3, 3, 4, 5)):
        x = pointwise_step(sketch, x)
    for _ in range(others):
        if any("norm" in name or "softmax" in name for name in sketch.operators):
            x = activated(sketch, x)  # the mean behind a norm is 0, the sum of a softmax is 1
        x = sketch.pick(normalised, pooled, reduction)(sketch, x) if x.rank else x
        for _ in range(sketch.pick(0, 0, 1, 1, 2)):
            x = pointwise_step(sketch, x)
    if x.axes == first.axes and sketch.chance(0.2) and x is not first:
        x = sketch.emit(f"{x} + {first}", x.axes, "add")
    return [x]


def pointwise_chain(sketch: Sketch) -> list[Tensor]:
    """Draw three to seven pointwise steps, over inputs that may broadcast."""
    axes = sketch.axes()
    shapes = broadcast_shapes(sketch, axes, 1) if sketch.chance(0.5) else [axes]
    x = activated(sketch, sketch.input(shapes[0]))
    for shape in shapes[1:]:
        x = joined_with(sketch, x, sketch.input(shape), axes)
    for _ in range(sketch.rng.randint(1, 5)):
        x = pointwise_step(sketch, x)
    return [x]


def operator(sketch: Sketch) -> Tensor:
    """Draw an operator of the table before a pointwise step, and at times behind another."""
    form = None
    while form is None or form.operator in _OTHERS or "indices" in form.arguments + form.result:
        form = sketch.rng.choice(forms()[single(sketch.rng, _HEADS, "train")[1]])
    values, at = inputs_of(sketch, form)
    if form.inputs[0].fill == "" and sketch.chance(0.4):
        values[form.inputs[0].name] = pointwise_step(sketch, values[form.inputs[0].name])
    return pointwise_step(sketch, call(sketch, form, values, at))


_HEADS = ("reduction", "softmax", "scan", "pooling", "indexing", "norm", "product", "loss", "layout")
_OTHERS = (
    "argmax", "argmin", "any", "all", "count_nonzero", "one_hot", "var_mean", "std_mean", "aminmax", "unbind",
)  # fmt: skip
"""Operators whose result is no tensor of real numbers, or several."""
CHAINS: dict[str, Callable[[Sketch], list[Tensor]]] = {
    "chain_pointwise": pointwise_chain,
    "chain_linear": lambda sketch: chain(sketch, linear),
    "chain_product": lambda sketch: chain(sketch, product),
    "chain_convolution": lambda sketch: chain(sketch, convolution),
    "chain_reduction": lambda sketch: chain(sketch, reduction),
    "chain_norm": lambda sketch: chain(sketch, lambda of: normalised(of, activated(of, prelude(of)))),
    "chain_operator": lambda sketch: [operator(sketch)],
    "chain_views": formula,
}
