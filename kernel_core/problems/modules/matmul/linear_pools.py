"""Families of a linear layer with pooling over its features, and of two linear layers."""

from __future__ import annotations

import random
from dataclasses import replace

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.matmul import chains, operations
from kernel_core.problems.modules.matmul.linear import Tail, draw_linear, linear_draft
from kernel_core.problems.modules.matmul.linear_rows import behind_reduction, some_steps
from kernel_core.problems.modules.probe import pooled, reduced, rows, varies
from kernel_core.problems.modules.steps import Step, values_from
from kernel_core.problems.program import Size, draw_cpu_size


def linear_pool(rng: random.Random) -> Draft:
    """MaxPool1d or AvgPool1d over the features, steps, and at times a sum or maximum of the row."""
    linear = draw_linear(rng)
    taken = {linear.inputs, linear.outputs}
    kind = rng.choice(("max_pool1d", "avg_pool1d"))
    size = Size("kernel_size", rng.choice((2, 4, 8, 16)), rng.choice((2, 3)))
    after = _behind_pool(rng, kind, size, linear.sizes[-1].gpu, taken)
    word = kind.partition("_")[0]
    attribute, layer = f"self.{word}_pool", f"nn.{word.capitalize()}Pool1d"
    core = Step(
        kind,
        (f"x = {attribute}(x.unsqueeze(1)).squeeze(1)",),
        init_args=("kernel_size",),
        init_lines=(f"{attribute} = {layer}(kernel_size)",),
    )
    return linear_draft(linear, Tail((), core, after, (size,)), rng)


def _behind_pool(
    rng: random.Random, kind: str, size: Size, columns: int, taken: set[str]
) -> tuple[Step, ...]:
    """Steps behind a pooling, a reduction of the row or none, and the steps behind that."""
    reduction = rng.choice(("sum", "max", "max", ""))
    first = pooled(rows(chains.LINEAR_SPREAD), kind, size.gpu)
    middle = some_steps(rng, (0, 1, 1, 2), "", taken, vectors=False)
    if not reduction:
        return tuple(middle)
    if not varies(reduced(values_from(middle, first), reduction, 1)):
        middle = []
    start = reduced(values_from(middle, first), reduction, columns // size.gpu)
    behind = behind_reduction(rng, taken, start)
    arguments = "dim=1, keepdim=True" if rng.random() < 0.4 else "dim=1"
    ending = ".values" if reduction == "max" else ""
    return (*middle, Step(reduction, (f"x = torch.{reduction}(x, {arguments}){ending}",)), *behind)


def linear_pair(rng: random.Random) -> Draft:
    """Two linear layers with an activation between them, and a chain or a reduction behind the second."""
    linear = draw_linear(rng)
    inner, last = rng.choice((("linear1", "linear2"), ("fc1", "fc2"), ("up", "down")))
    output = Size("out_size", rng.choice((512, 1000, 1024, 2048)), draw_cpu_size(rng, 20, 50))
    layers = (
        f"self.{inner} = nn.Linear({linear.inputs}, {linear.outputs})",
        f"self.{last} = nn.Linear({linear.outputs}, out_size)",
    )
    linear = replace(linear, init_lines=layers, torch=f"x = self.{inner}(x)")
    taken = {linear.inputs, linear.outputs, "out_size"}
    between = operations.activation(rng, taken)
    kind = rng.choice(("", "logsumexp", "softmax", "max", "sum"))
    after = chains.draw_chain(rng, rng.choice((1, 2)), "out_size", taken) if not kind else []
    ending = {
        "": (),
        "softmax": ("x = torch.softmax(x, dim=1)",),
        "max": ("x = torch.max(x, dim=1).values",),
    }.get(kind, (f"x = torch.{kind}(x, dim=1)",))
    core = Step("linear", (f"x = self.{last}(x)", *ending), init_args=("out_size",))
    drawn = linear_draft(linear, Tail((between,), core, tuple(after), (output,)), rng)
    return replace(drawn, operators=(*drawn.operators, kind)) if kind else drawn
