"""Families of a linear layer with pooling over its features, and of two linear layers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.matmul import chains, operations
from kernel_core.problems.modules.matmul.flat import call, flat_kernel, flat_launch, function
from kernel_core.problems.modules.matmul.gemm import Tile
from kernel_core.problems.modules.matmul.linear import (
    KERNEL_NAMES,
    Tail,
    Version,
    draw_linear,
    linear_draft,
    linear_module,
    why_fused,
)
from kernel_core.problems.modules.matmul.linear_product import (
    PLAIN,
    own_products,
    pair_product,
    product_reason,
    tuned_tile,
    with_grades,
)
from kernel_core.problems.modules.matmul.linear_rows import behind_reduction, some_steps
from kernel_core.problems.modules.matmul.probe import pooled, reduced, rows, varies
from kernel_core.problems.modules.matmul.rows import ROW, ROW_OPERATORS, row_kernel, row_launch
from kernel_core.problems.modules.matmul.steps import (
    Step,
    broken,
    pointers,
    scalar_names,
    scalar_values,
    tensors,
    tile_lines,
    values_from,
)
from kernel_core.problems.modules.matmul.wording import listed
from kernel_core.problems.program import Size, draw_cpu_size

_INFINITY = 'float("-inf")'
_REDUCTIONS = {
    "sum": (
        "tl.zeros((BLOCK,), dtype=tl.float32)",
        "acc += tl.where(mask, x, 0.0)",
        "x = tl.sum(acc, axis=0)",
    ),
    "max": (
        f"tl.full((BLOCK,), {_INFINITY}, dtype=tl.float32)",
        f"acc = tl.maximum(acc, tl.where(mask, x, {_INFINITY}))",
        "x = tl.max(acc, axis=0)",
    ),
}
_FAULTS = {
    "": ("wrong_stride", "cols * KERNEL + k", "cols + k"),
    "sum": ("wrong_reduction", "tl.sum(acc", "tl.max(acc"),
    "max": ("wrong_reduction", "tl.max(acc", "tl.sum(acc"),
}
"""For each reduction a fault, the text that it changes, and the wrong text."""


@dataclass(frozen=True)
class _Pool:
    """A pooling, the steps behind it, a reduction of the row or none, and the steps behind that."""

    kind: str
    size: Size
    middle: list[Step]
    reduction: str
    behind: list[Step]
    keep: bool

    @property
    def attribute(self) -> str:
        """The layer in `forward`."""
        return "self.max_pool" if self.kind == "max_pool1d" else "self.avg_pool"

    @property
    def window(self) -> str:
        """The host's expression for the size of a window."""
        return f"{self.attribute}.kernel_size" + ("" if self.kind == "max_pool1d" else "[0]")

    @property
    def shape(self) -> str:
        """The output's shape on the host."""
        return "(M, P)" if not self.reduction else "(M, 1)" if self.keep else "(M,)"

    @property
    def after(self) -> tuple[Step, ...]:
        """All that follows the pooling."""
        arguments = "dim=1, keepdim=True" if self.keep else "dim=1"
        ending = ".values" if self.reduction == "max" else ""
        line = f"x = torch.{self.reduction}(x, {arguments}){ending}"
        reduced_step = [Step(self.reduction, (line,), ())] if self.reduction else []
        return (*self.middle, *reduced_step, *self.behind)


def _draw_pool(rng: random.Random, columns: int, taken: set[str]) -> _Pool:
    kind = rng.choice(("max_pool1d", "avg_pool1d"))
    size = Size("kernel_size", rng.choice((2, 4, 8, 16)), rng.choice((2, 3)))
    reduction = rng.choice(("sum", "max", "max", ""))
    first = pooled(rows(chains.LINEAR_SPREAD), kind, size.gpu)
    middle = some_steps(rng, (0, 1, 1, 2), "", taken, vectors=False)
    if not reduction:
        return _Pool(kind, size, middle, "", [], False)
    if not varies(reduced(values_from(middle, first), reduction, 1)):
        middle = []
    start = reduced(values_from(middle, first), reduction, columns // size.gpu)
    return _Pool(kind, size, middle, reduction, behind_reduction(rng, taken, start), rng.random() < 0.4)


def linear_pool(rng: random.Random) -> Draft:
    """MaxPool1d or AvgPool1d over the features, steps, and at times a sum or maximum of the row."""
    linear = draw_linear(rng)
    pool = _draw_pool(rng, linear.sizes[-1].gpu, {linear.inputs, linear.outputs})
    layer = "nn.MaxPool1d" if pool.kind == "max_pool1d" else "nn.AvgPool1d"
    tail = Tail(
        (),
        pool.kind,
        (f"x = {pool.attribute}(x.unsqueeze(1)).squeeze(1)",),
        pool.after,
        init_args=("kernel_size",),
        init_lines=(f"{pool.attribute} = {layer}(kernel_size)",),
        sizes=(pool.size,),
    )
    module = linear_module(linear, tail, rng)
    name = rng.choice(KERNEL_NAMES)
    kernel = _pool_kernel(name, pool)
    fault, right, other = _FAULTS[pool.reduction]
    wrong = kernel.replace(right, other)
    why = f"{why_fused(tail, rng)} One program takes a row; each lane reads its own window of the pooling."

    def host(begin: Sequence[str]) -> tuple[str, ...]:
        launch = [
            "x", *tensors(pool.after), "out", *scalar_values(pool.after), "N", "P", f"KERNEL={pool.window}",
            "BLOCK=512",
        ]  # fmt: skip
        made = f"out = torch.empty({pool.shape}, device=x.device, dtype=x.dtype)"
        lines = [
            f"P = N // {pool.window}",
            made,
            *call(f"{name}[(M,)]", launch).split("\n"),
        ]
        return (*begin, *lines, "return out")

    begin = (linear.torch, "M, N = x.shape")
    plain, tuned = own_products(linear, (), rng)
    versions = [
        Version("naive", (kernel,), host(begin), why),
        *(
            Version(
                grade,
                (own.function, kernel),
                host(own.host),
                f"{own.thinking} A second kernel takes a row a program; each lane reads its own window.",
            )
            for grade, own in with_grades(plain, tuned)
        ),
        Version("mistake", (wrong,), host(begin), why, fault),
    ]
    return linear_draft("linear_pool", linear, tail, module, versions, rng)


def _pool_kernel(name: str, pool: _Pool) -> str:
    kind, middle, reduction, behind = pool.kind, pool.middle, pool.reduction, pool.behind
    load = "tl.load(x_ptr + row * N + cols * KERNEL + k, mask=mask, other=0.0)"
    first = f"x = tl.full((BLOCK,), {_INFINITY}, dtype=tl.float32)"
    each = f"    x = tl.maximum(x, {load})"
    if kind == "avg_pool1d":
        first, each = "x = tl.zeros((BLOCK,), dtype=tl.float32)", f"    x += {load}"
    begin, add, end = _REDUCTIONS[reduction] if reduction else ("", "", "")
    loop = [
        "cols = start + tl.arange(0, BLOCK)",
        "mask = cols < P",
        first,
        "for k in range(KERNEL):",
        each,
        *(["x = x / KERNEL"] if kind == "avg_pool1d" else []),
        *tile_lines(middle, ROW),
        add if reduction else "tl.store(out_ptr + row * P + cols, x, mask=mask)",
    ]
    body = [
        "row = tl.program_id(0).to(tl.int64)",
        *([f"acc = {begin}"] if reduction else []),
        "for start in range(0, P, BLOCK):",
        *(f"    {line}" for line in loop),
        *([end, *tile_lines(behind, ROW), "tl.store(out_ptr + row, x)"] if reduction else []),
    ]
    steps = [*middle, *behind]
    arguments = ["x_ptr", *pointers(steps), "out_ptr", *scalar_names(steps), "N", "P"]
    return function(name, [*arguments, "KERNEL: tl.constexpr", "BLOCK: tl.constexpr"], body)


def linear_pair(rng: random.Random) -> Draft:
    """Two linear layers with an activation between them, and a chain or a reduction behind the second."""
    linear = draw_linear(rng)
    inner, last = rng.choice((("linear1", "linear2"), ("fc1", "fc2"), ("up", "down")))
    output = Size("out_size", rng.choice((512, 1000, 1024, 2048)), draw_cpu_size(rng, 20, 50))
    layers = (
        f"self.{inner} = nn.Linear({linear.inputs}, {linear.outputs})",
        f"self.{last} = nn.Linear({linear.outputs}, out_size)",
    )
    linear = replace(
        linear,
        init_lines=layers,
        torch=f"x = self.{inner}(x)",
        weight=f"self.{inner}.weight",
        bias=f"self.{inner}.bias",
    )
    taken = {linear.inputs, linear.outputs, "out_size"}
    between = [operations.activation(rng, taken)]
    kind = rng.choice(("", "logsumexp", "softmax", "max", "sum"))
    after = chains.draw_chain(rng, rng.choice((1, 2)), "out_size", taken) if not kind else []
    tail = _pair_tail(f"self.{last}", output, between, after, kind)
    module = linear_module(linear, tail, rng)
    words = listed(
        [between[0].said, *(step.said for step in after if step.operator), *([kind] if kind else [])]
    )
    why = (
        f"Both products stay with cuBLAS. What lies around them ({words}) is bound by memory: "
        "one kernel between the products, one behind them."
    )
    negated = ("wrong_op", [replace(between[0], tile=("x = -x",))])
    fault = broken(between, rng, chains.LINEAR_SPREAD) or negated
    shape = "" if kind in ("", "softmax") else "(M,)"

    def version(first: list[Step], block: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if kind:
            second = row_kernel("row_kernel", ROW_OPERATORS[kind], (), ())
            launch = row_launch("row_kernel", (), shape, 1024)
        else:
            second, launch = flat_kernel("tail_kernel", after), flat_launch("tail_kernel", after, block)
        functions = (flat_kernel("activation_kernel", first), second)
        begin = flat_launch("activation_kernel", first, block, result="h")
        return functions, (linear.torch, *begin, f"x = self.{last}(h)", *launch, "return out")

    def own(tile: Tile) -> tuple[tuple[str, ...], tuple[str, ...], str]:
        functions, host = pair_product(linear, f"self.{last}", between, after, "y" if kind else "out", tile)
        if kind:
            functions = (*functions, row_kernel("row_kernel", ROW_OPERATORS[kind], (), ()))
            host = (*host, "x = y", *row_launch("row_kernel", (), shape, 1024)[1:])
        reason = product_reason(between, tile, rng)
        return functions, (*host, "return out"), f"{reason} Both layers share the kernel."

    versions = [
        Version("naive", *version(between, 1024), why),
        Version("fused", *own(PLAIN)),
        Version("tuned", *own(tuned_tile(linear, rng))),
        Version("mistake", *version(fault[1], 1024), why, fault[0]),
    ]
    draft = linear_draft("linear_pair", linear, tail, module, versions, rng)
    return replace(draft, operators=(*draft.operators, kind)) if kind else draft


def _pair_tail(last: str, output: Size, between: list[Step], after: list[Step], kind: str) -> Tail:
    """The activation, the second layer, and a chain or a reduction."""
    ending = {
        "": (),
        "softmax": ("x = torch.softmax(x, dim=1)",),
        "max": ("x = torch.max(x, dim=1).values",),
    }.get(kind, (f"x = torch.{kind}(x, dim=1)",))
    return Tail(
        tuple(between),
        "linear",
        (f"x = {last}(x)", *ending),
        tuple(after),
        init_args=("out_size",),
        sizes=(output,),
    )
