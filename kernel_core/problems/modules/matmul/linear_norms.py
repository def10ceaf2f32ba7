"""Families of a linear layer with a norm over groups of features, or over the batch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.matmul.linear import Linear, Tail, draw_linear, linear_module
from kernel_core.problems.modules.matmul.linear_rows import reduction_line, some_steps
from kernel_core.problems.modules.probe import reduced, rows, varies
from kernel_core.problems.modules.steps import Step, values_from
from kernel_core.problems.modules.style import draw_style
from kernel_core.problems.program import Size, draw_cpu_size

_GROUPS = (8, 16, 32, 64, 128, 256)
_FEATURES = (1024, 2048, 4096, 6144, 8192)


def linear_groupnorm(rng: random.Random) -> Draft:
    """GroupNorm over the features, with steps before and behind it; at times one value a row last."""
    groups = Size("num_groups", rng.choice(_GROUPS), rng.choice((3, 5, 6)))
    width = rng.choice(_FEATURES)
    linear = draw_linear(rng, Size("out", width, groups.cpu * draw_cpu_size(rng, 5, 14)))
    taken = {linear.inputs, linear.outputs}
    before = some_steps(rng, (0, 0, 1, 2), linear.outputs, taken, vectors=True)
    after = some_steps(rng, (0, 1, 1, 2, 3), linear.outputs, taken, vectors=True)
    attribute = rng.choice(("self.group_norm", "self.gn", "self.norm"))
    core = Step(
        "group_norm",
        (f"x = {attribute}(x)",),
        init_args=("num_groups",),
        init_lines=(f"{attribute} = nn.GroupNorm(num_groups, {linear.outputs})",),
    )
    tail = Tail(tuple(before), core, tuple(after), (groups,))
    closing = _closing(rng, 0.25, ("min", "max", "logsumexp", "softmax"), after)
    return _closed(linear, tail, closing, rng)


def linear_batchnorm(rng: random.Random) -> Draft:
    """BatchNorm over the batch, with steps around it; at times an operator over the features behind it."""
    linear = draw_linear(rng)
    if rng.random() < 0.4:
        batch = replace(linear.sizes[0], cpu=draw_cpu_size(rng, 65, 90))
        linear = replace(
            linear, sizes=(batch, linear.sizes[1], replace(linear.sizes[2], cpu=draw_cpu_size(rng, 35, 60)))
        )
    taken = {linear.inputs, linear.outputs}
    before = some_steps(rng, (0, 0, 1, 2), linear.outputs, taken, vectors=True)
    after = some_steps(rng, (0, 1, 2, 3), linear.outputs, taken, vectors=True)
    attribute = rng.choice(("self.bn", "self.batch_norm", "self.norm"))
    layer = rng.choice(
        (f"nn.BatchNorm1d({linear.outputs})", f"nn.BatchNorm1d({linear.outputs}, eps=1e-5, momentum=0.1)")
    )
    core = Step("batch_norm", (f"x = {attribute}(x)",), init_lines=(f"{attribute} = {layer}",))
    tail = Tail(tuple(before), core, tuple(after))
    closing = _closing(rng, 0.3, ("softmax", "softmax", "max", "min", "logsumexp"), after)
    return _closed(linear, tail, closing, rng)


def _closing(
    rng: random.Random, chance: float, kinds: Sequence[str], after: Sequence[Step]
) -> tuple[str, str]:
    """An operator over the features behind a norm, and torch's expression over `x`; both empty without one.

    None where the steps after a norm give each row the same, as a clamp does of the largest value.
    """
    if rng.random() >= chance:
        return "", ""
    kind = rng.choice(kinds)
    if kind != "softmax" and not varies(reduced(values_from(after, rows(1.0)), kind, 1)):
        return "", ""
    keep = rng.random() < 0.7
    line = "x = torch.softmax(x, dim=1)" if kind == "softmax" else reduction_line(rng, kind, keep)
    return kind, line.removeprefix("x = ")


def _closed(linear: Linear, tail: Tail, closing: tuple[str, str], rng: random.Random) -> Draft:
    """The problem with the operator at the end of `forward`."""
    module = linear_module(linear, tail, rng)
    operators = ("linear", *tail.operators)
    kind, text = closing
    if kind:
        last = module.forward_lines[-1].removeprefix("return ")
        value = text.replace("(x,", f"({last},")
        lines = (f"return {value}",) if rng.random() < 0.5 else (f"{last} = {value}", f"return {last}")
        doc = f"{module.doc[:-1]}, {kind.replace('_', ' ')}."
        module = replace(module, forward_lines=(*module.forward_lines[:-1], *lines), doc=doc)
        operators = (*operators, kind)
    return module.draft(operators, draw_style(rng))
