"""Families of a linear layer with pooling over its features, and of two linear layers."""

from __future__ import annotations

import random
from dataclasses import replace

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.matmul import chains, operations
from kernel_core.problems.modules.matmul.flat import call, flat_kernel, flat_launch, function
from kernel_core.problems.modules.matmul.linear import (
    KERNEL_NAMES,
    Tail,
    Version,
    draw_linear,
    linear_draft,
    linear_module,
    why_fused,
)
from kernel_core.problems.modules.matmul.linear_rows import behind_reduction, some_steps
from kernel_core.problems.modules.matmul.rows import ROW, ROW_OPERATORS, row_kernel, row_launch
from kernel_core.problems.modules.matmul.steps import (
    Step,
    broken,
    pointers,
    scalar_names,
    scalar_values,
    tensors,
    tile_lines,
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


def linear_pool(rng: random.Random) -> Draft:
    """MaxPool1d or AvgPool1d over the features, steps, and at times a sum or maximum of the row."""
    linear = draw_linear(rng)
    taken = {linear.inputs, linear.outputs}
    kind = rng.choice(("max_pool1d", "avg_pool1d"))
    middle = some_steps(rng, (0, 1, 1, 2), "", taken, vectors=False)
    reduction = rng.choice(("sum", "max", "max", ""))
    behind = behind_reduction(rng, taken) if reduction else []
    size = Size("kernel_size", rng.choice((2, 4, 8, 16)), rng.choice((2, 3)))
    attribute = "self.max_pool" if kind == "max_pool1d" else "self.avg_pool"
    layer = "nn.MaxPool1d" if kind == "max_pool1d" else "nn.AvgPool1d"
    keep = reduction and rng.random() < 0.4
    arguments = "dim=1, keepdim=True" if keep else "dim=1"
    ending = {"sum": f"x = torch.sum(x, {arguments})", "max": f"x = torch.max(x, {arguments}).values"}
    reduced = Step(
        reduction, (ending[reduction],), ()
    ) if reduction else None  # fmt: skip
    after = (*middle, *([reduced] if reduced else []), *behind)
    tail = Tail(
        (),
        kind,
        (f"x = {attribute}(x.unsqueeze(1)).squeeze(1)",),
        after,
        init_args=("kernel_size",),
        init_lines=(f"{attribute} = {layer}(kernel_size)",),
        sizes=(size,),
    )
    module = linear_module(linear, tail, rng)
    name = rng.choice(KERNEL_NAMES)
    kernel = _pool_kernel(name, kind, middle, reduction, behind)
    wrong = kernel.replace("cols * KERNEL + k", "cols + k")
    shape = "(M, P)" if not reduction else "(M, 1)" if keep else "(M,)"
    held = f"{attribute}.kernel_size" + ("" if kind == "max_pool1d" else "[0]")
    why = f"{why_fused(tail, rng)} One program takes a row; each lane reads its own window of the pooling."

    def host(block: int, warps: int = 4) -> tuple[str, ...]:
        launch = [
            "x", *tensors(after), "out", *scalar_values(after), "N", "P", f"KERNEL={held}", f"BLOCK={block}",
            *([f"num_warps={warps}"] if warps != 4 else []),
        ]  # fmt: skip
        made = f"out = torch.empty({shape}, device=x.device, dtype=x.dtype)"
        lines = ["M, N = x.shape", f"P = N // {held}", made, *call(f"{name}[(M,)]", launch).split("\n")]
        return (linear.torch, *lines, "return out")

    versions = [
        Version("naive", (kernel,), host(128), "One program a row, in blocks of 128 windows."),
        Version("fused", (kernel,), host(512), why),
        Version("tuned", (kernel,), host(1024, 8), why),
        Version("mistake", (wrong,), host(512), why, "wrong_stride"),
    ]
    return linear_draft("linear_pool", linear, tail, module, versions, rng)


def _pool_kernel(name: str, kind: str, middle: list[Step], reduction: str, behind: list[Step]) -> str:
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
    linear = replace(linear, init_lines=layers, torch=f"x = self.{inner}(x)")
    taken = {linear.inputs, linear.outputs, "out_size"}
    between = [operations.activation(rng, taken)]
    kind = rng.choice(("", "logsumexp", "softmax", "max", "sum"))
    after = chains.draw_chain(rng, rng.choice((1, 2)), "out_size", taken) if not kind else []
    ending = {
        "": chains.torch_lines(after),
        "softmax": ("x = torch.softmax(x, dim=1)",),
        "max": ("x = torch.max(x, dim=1).values",),
    }.get(kind, (f"x = torch.{kind}(x, dim=1)",))
    tail = Tail(
        tuple(between),
        "linear",
        (f"x = self.{last}(x)", *(ending if kind else ())),
        tuple(after),
        init_args=("out_size",),
        sizes=(output,),
    )
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

    versions = [
        Version("naive", *version(between, 256), "Two small Triton kernels around torch's products."),
        Version("fused", *version(between, 1024), why),
        Version("mistake", *version(fault[1], 1024), why, fault[0]),
    ]
    draft = linear_draft("linear_pair", linear, tail, module, versions, rng)
    return replace(draft, operators=(*draft.operators, kind)) if kind else draft
