"""Families of a linear layer with an elementwise chain behind it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kernel_core.problems.graded import Grade
from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.matmul import chains, operations
from kernel_core.problems.modules.matmul.flat import flat_kernel, flat_launch
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
from kernel_core.problems.modules.matmul.linear_product import OwnProduct, own_products
from kernel_core.problems.modules.matmul.steps import Step, broken


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
    plain, tuned = own_products(linear, steps, rng, "out")
    versions = [
        flat_version("naive", linear, steps, name, 1024, f"{why} It is flat over all elements."),
        _product_version("fused", steps, plain),
        _product_version("tuned", steps, tuned),
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


def _product_version(grade: Grade, steps: Sequence[Step], own: OwnProduct) -> Version:
    further = [f"{other} = {other}.contiguous()" for other in chains.further_inputs(steps)]
    return Version(grade, (own.function,), (*further, *own.host, "return out"), own.thinking)
