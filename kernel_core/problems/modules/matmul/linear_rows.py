"""Families of a linear layer with a chain, or with a reduction, softmax or norm over its features."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.matmul import chains, operations
from kernel_core.problems.modules.matmul.linear import Linear, Tail, draw_linear, linear_draft
from kernel_core.problems.modules.probe import Array, reduced, rows, varies
from kernel_core.problems.modules.steps import Step, values_from
from kernel_core.problems.modules.style import unused

_VISIBLE_MEAN = 0.1
_BEHIND_REDUCTION = (
    *(operations.number, operations.number, operations.activation, operations.point, operations.twice),
)


def linear_elementwise(rng: random.Random) -> Draft:
    """A linear layer, then one to five elementwise operators with constants and parameters."""
    linear = draw_linear(rng)
    taken = {linear.inputs, linear.outputs}
    length = rng.choices((1, 2, 3, 4, 5), (1, 3, 4, 3, 2))[0]
    steps = chains.draw_chain(rng, length, linear.outputs, taken)
    if rng.random() < 0.1:
        steps.append(operations.second_input(rng, taken))
    return linear_draft(linear, Tail(tuple(steps)), rng)


def linear_reduction(rng: random.Random) -> Draft:
    """One value a row: sum, max, min, mean or logsumexp over the features, and steps around it."""
    linear = draw_linear(rng)
    taken = {linear.inputs, linear.outputs}
    kind = rng.choices(("sum", "max", "min", "logsumexp", "mean"), (4, 3, 2, 4, 1))[0]
    before = before_reduction(rng, kind, (0, 1, 1, 2), linear.outputs, taken)
    columns = linear.sizes[-1].gpu
    after = behind_reduction(
        rng, taken, reduced(values_from(before, rows(chains.LINEAR_SPREAD)), kind, columns)
    )
    keep = rng.random() < 0.7
    if keep and rng.random() < 0.4:
        at = rng.randint(0, len(after))
        after[at:at] = [operations.of_one(rng) for _ in range(rng.randint(1, 3))]
    line = reduction_line(rng, kind, keep)
    kept = unused(("original_x", "residual", "identity", "input_x"), rng, taken) if keep else ""
    tail = Tail(tuple(before), Step(kind, (line,)), tuple(after), kept=kept if rng.random() < 0.15 else "")
    return linear_draft(linear, tail, rng)


def linear_softmax(rng: random.Random) -> Draft:
    """Softmax, its logarithm, or the difference to the row's mean, with steps around it."""
    linear = draw_linear(rng)
    taken = {linear.inputs, linear.outputs}
    kind = rng.choices(("softmax", "log_softmax", "sub_mean"), (4, 1, 1))[0]
    if kind == "sub_mean":
        return _less_mean(rng, linear, taken)
    before = some_steps(rng, (0, 1, 1, 2, 3), linear.outputs, taken, vectors=True)
    after = [operations.number(rng, taken)] if rng.random() < 0.3 else []
    form = rng.choice(("torch.{}(x, dim=1)", "torch.{}(x, dim=-1)", "F.{}(x, dim=1)", "layer"))
    init: tuple[str, ...] = ()
    if form == "layer":
        form = f"self.{kind}(x)"
        layer = {"softmax": "nn.Softmax(dim=1)", "log_softmax": "nn.LogSoftmax(dim=1)"}[kind]
        init = (f"self.{kind} = {layer}",)
    core = Step(kind, (f"x = {form.format(kind)}",), init_lines=init)
    tail = Tail(tuple(before), core, tuple(after))
    return linear_draft(linear, tail, rng)


def _less_mean(rng: random.Random, linear: Linear, taken: set[str]) -> Draft:
    """The difference to the row's own mean, which steps before it have moved away from zero."""
    while True:
        names = set(taken)
        before = some_steps(rng, (1, 2, 2, 3), linear.outputs, names, vectors=False)
        if abs(values_from(before, rows(chains.LINEAR_SPREAD)).mean()) > _VISIBLE_MEAN:
            break
    after = some_steps(rng, (0, 1, 1, 2), linear.outputs, names, vectors=True)
    mean = rng.choice(
        ("x.mean(dim=1, keepdim=True)", "torch.mean(x, dim=1, keepdim=True)", "x.mean(-1, keepdim=True)")
    )
    tail = Tail(tuple(before), Step("sub_mean", (f"x = x - {mean}",)), tuple(after))
    return linear_draft(linear, tail, rng)


def linear_layernorm(rng: random.Random) -> Draft:
    """LayerNorm over the features, or InstanceNorm of each row, with steps around it."""
    linear = draw_linear(rng)
    taken = {linear.inputs, linear.outputs}
    before = some_steps(rng, (0, 0, 1), linear.outputs, taken, vectors=True)
    after = some_steps(rng, (0, 1, 2), linear.outputs, taken, vectors=True)
    if rng.random() < 0.35:
        kind, init, line = rng.choice((
            ("instance_norm", "self.norm = nn.InstanceNorm1d(1)", "x = self.norm(x.unsqueeze(1)).squeeze(1)"),
            ("instance_norm", f"self.instance_norm = nn.InstanceNorm2d({linear.outputs})",
             "x = self.instance_norm(x.unsqueeze(1).unsqueeze(1)).squeeze(1).squeeze(1)"),
        ))  # fmt: skip
        if rng.random() < 0.6:
            after.append(operations.second_input(rng, taken))
            after.append(operations.second_input(rng, taken)) if rng.random() < 0.3 else None
    else:
        attribute = rng.choice(("self.norm", "self.layer_norm", "self.ln"))
        kind, init, line = (
            "layer_norm",
            f"{attribute} = nn.LayerNorm({linear.outputs})",
            f"x = {attribute}(x)",
        )
    tail = Tail(tuple(before), Step(kind, (line,), init_lines=(init,)), tuple(after))
    return linear_draft(linear, tail, rng)


def some_steps(
    rng: random.Random, lengths: Sequence[int], columns: str, taken: set[str], *, vectors: bool
) -> list[Step]:
    """A chain of one of the lengths, which may be none."""
    length = rng.choice(lengths)
    return chains.draw_chain(rng, length, columns, taken, vectors=vectors) if length else []


def before_reduction(
    rng: random.Random, kind: str, lengths: Sequence[int], columns: str, taken: set[str]
) -> list[Step]:
    """Steps before a reduction; its results differ between rows."""
    while True:
        names = set(taken)
        steps = some_steps(rng, lengths, columns, names, vectors=True)
        if varies(reduced(values_from(steps, rows(chains.LINEAR_SPREAD)), kind, 1)):
            taken.update(names)
            return steps


def behind_reduction(rng: random.Random, taken: set[str], start: Array) -> list[Step]:
    """Steps on one value a row; none that makes most rows equal. `start` are values of some rows."""
    while True:
        names = set(taken)
        steps = [rng.choice(_BEHIND_REDUCTION)(rng, names) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        if varies(values_from(steps, start)):
            taken.update(names)
            return steps


def reduction_line(rng: random.Random, kind: str, keep: bool) -> str:
    """Torch's line for one value a row."""
    dim = rng.choice(("dim=1", "dim=1", "dim=-1", "1"))
    arguments = f"{dim}, keepdim=True" if keep else dim
    if kind in ("sum", "mean") and rng.random() < 0.2:
        return f"x = x.{kind}({arguments})"
    if kind in ("max", "min"):
        ending = rng.choice((".values", "[0]"))
        return f"x = torch.{kind}(x, {arguments}){ending}"
    return f"x = torch.{kind}(x, {arguments})"
