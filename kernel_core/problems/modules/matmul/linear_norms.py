"""Families of a linear layer with a norm over groups of features, or over the batch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.matmul.flat import call, function
from kernel_core.problems.modules.matmul.linear import (
    KERNEL_NAMES,
    Tail,
    Version,
    draw_linear,
    linear_draft,
    linear_module,
    why_fused,
)
from kernel_core.problems.modules.matmul.linear_product import own_products, with_grades
from kernel_core.problems.modules.matmul.linear_rows import reduction_line, some_steps
from kernel_core.problems.modules.matmul.probe import reduced, rows, varies
from kernel_core.problems.modules.matmul.rows import ROW_OPERATORS, row_kernel, row_launch
from kernel_core.problems.modules.matmul.steps import (
    Loads,
    Step,
    pointers,
    scalar_names,
    scalar_values,
    tensors,
    tile_lines,
    values_from,
)
from kernel_core.problems.program import Size, draw_cpu_size

_AFFINE = Step("", (), ("x = x * norm_weight + norm_bias",), vectors=("norm_weight", "norm_bias"))
_GROUP = Loads(
    vector="tl.load({name}_ptr + cols, mask=mask, other=0.0)",
    full="tl.load({name}_ptr + row * N + cols, mask=mask, other=0.0)",
    row="tl.load({name}_ptr + row)",
)
_COLUMN = Loads(
    vector="tl.load({name}_ptr + cols, mask=cols < N, other=0.0)",
    full="tl.load({name}_ptr + rows * N + cols, mask=mask, other=0.0)",
    row="tl.load({name}_ptr + rows, mask=rows < M, other=0.0)",
)
_GROUPS = (8, 16, 32, 64, 128, 256)
_FEATURES = (1024, 2048, 4096, 6144, 8192)


@dataclass(frozen=True)
class _Closing:
    """An operator over the features behind a norm, in a kernel of its own; all is empty without one."""

    operator: str = ""
    torch: str = ""
    """Torch's expression over `x`."""
    functions: tuple[str, ...] = ()
    host: tuple[str, ...] = ()

    def behind(self, module: Module, rng: random.Random) -> Module:
        """The reference with the operator at the end of `forward`."""
        if not self.operator:
            return module
        last = module.forward_lines[-1].removeprefix("return ")
        value = self.torch.replace("(x,", f"({last},")
        lines = (f"return {value}",) if rng.random() < 0.5 else (f"{last} = {value}", f"return {last}")
        doc = f"{module.doc[:-1]}, {self.operator.replace('_', ' ')}."
        return replace(module, forward_lines=(*module.forward_lines[:-1], *lines), doc=doc)


def _closing(rng: random.Random, chance: float, kinds: Sequence[str], after: Sequence[Step]) -> _Closing:
    """None where the steps after a norm give each row the same, as a clamp does of the largest value."""
    if rng.random() >= chance:
        return _Closing()
    kind = rng.choice(kinds)
    if kind != "softmax" and not varies(reduced(values_from(after, rows(1.0)), kind, 1)):
        return _Closing()
    name = f"{kind}_kernel"
    kernel = row_kernel(name, ROW_OPERATORS[kind], (), ())
    keep = rng.random() < 0.7
    shape = "" if kind == "softmax" else "(M, 1)" if keep else "(M,)"
    line = "x = torch.softmax(x, dim=1)" if kind == "softmax" else reduction_line(rng, kind, keep)
    if line.startswith(f"x = x.{kind}("):
        line = f"x = torch.{kind}(x, {line.removeprefix(f'x = x.{kind}(')}"
    host = ("x = out", *row_launch(name, (), shape, 1024))
    return _Closing(kind, line.removeprefix("x = "), (kernel,), host)


def linear_groupnorm(rng: random.Random) -> Draft:
    """GroupNorm over the features, with steps before and behind it; at times one value a row last."""
    groups = Size("num_groups", rng.choice(_GROUPS), rng.choice((3, 5, 6)))
    width = rng.choice(_FEATURES)
    linear = draw_linear(rng, Size("out", width, groups.cpu * draw_cpu_size(rng, 5, 14)))
    taken = {linear.inputs, linear.outputs}
    before = some_steps(rng, (0, 0, 1, 2), linear.outputs, taken, vectors=True)
    after = some_steps(rng, (0, 1, 1, 2, 3), linear.outputs, taken, vectors=True)
    attribute = rng.choice(("self.group_norm", "self.gn", "self.norm"))
    tail = Tail(
        tuple(before),
        "group_norm",
        (f"x = {attribute}(x)",),
        tuple(after),
        init_args=("num_groups",),
        init_lines=(f"{attribute} = nn.GroupNorm(num_groups, {linear.outputs})",),
        sizes=(groups,),
    )
    closing = _closing(rng, 0.25, ("min", "max", "logsumexp", "softmax"), after)
    module = closing.behind(linear_module(linear, tail, rng), rng)
    name = rng.choice(KERNEL_NAMES)
    kernel = _group_kernel(name, tail)
    wrong = kernel.replace("diff * tl.rsqrt(var + eps)", "diff / (var + eps)")
    why = (
        f"{why_fused(tail, rng)} A group fits in a tile, so mean, variance and result take one read; "
        "a program holds some groups of a row."
    )
    begin = (linear.torch, "M, N = x.shape")
    rest = replace(tail, before=())
    plain, tuned = own_products(linear, before, rng)
    versions = [
        Version(
            "naive", (kernel, *closing.functions), _group_host(begin, tail, name, attribute, closing), why
        ),
        *(
            Version(
                grade,
                (own.function, _group_kernel(name, rest), *closing.functions),
                _group_host(own.host, rest, name, attribute, closing),
                f"{own.thinking} A second kernel holds some groups of a row in a tile.",
            )
            for grade, own in with_grades(plain, tuned)
        ),
        Version(
            "mistake",
            (wrong, *closing.functions),
            _group_host(begin, tail, name, attribute, closing),
            why,
            "missing_root",
        ),
    ]
    return _closed(linear_draft("linear_groupnorm", linear, tail, module, versions, rng), closing)


def _closed(draft: Draft, closing: _Closing) -> Draft:
    operators = (closing.operator,) if closing.operator else ()
    return replace(draft, operators=(*draft.operators, *operators))


def _group_kernel(name: str, tail: Tail) -> str:
    steps = [*tail.before, _AFFINE, *tail.after]
    arguments = ["x_ptr", *pointers(steps), "out_ptr", *scalar_names(steps), "N", "G", "D", "eps"]
    body = [
        "row = tl.program_id(0).to(tl.int64)",
        "group = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)[:, None]",
        "d = tl.arange(0, BLOCK_D)[None, :]",
        "mask = (group < G) & (d < D)",
        "cols = group * D + d",
        "x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0)",
        *tile_lines(tail.before, _GROUP),
        "mean = tl.sum(tl.where(mask, x, 0.0), axis=1)[:, None] / D",
        "diff = tl.where(mask, x - mean, 0.0)",
        "var = tl.sum(diff * diff, axis=1)[:, None] / D",
        "x = diff * tl.rsqrt(var + eps)",
        *tile_lines([_AFFINE, *tail.after], _GROUP),
        "tl.store(out_ptr + row * N + cols, x, mask=mask)",
    ]
    return function(name, [*arguments, "BLOCK_G: tl.constexpr", "BLOCK_D: tl.constexpr"], body)


def _group_host(
    begin: Sequence[str], tail: Tail, name: str, attribute: str, closing: _Closing
) -> tuple[str, ...]:
    """From the rows `x`, which `begin` makes with their sizes M and N."""
    arguments = [
        "x", *_ordered(tail, attribute), "out", *scalar_values(tail.steps), "N", "G", "D", f"{attribute}.eps",
        "BLOCK_G=4", "BLOCK_D=triton.next_power_of_2(D)",
    ]  # fmt: skip
    return (
        *begin,
        f"G = {attribute}.num_groups",
        "D = N // G",
        "out = torch.empty_like(x)",
        "grid = (M, triton.cdiv(G, 4))",
        *call(f"{name}[grid]", arguments).split("\n"),
        *closing.host,
        "return out",
    )


def _ordered(tail: Tail, attribute: str) -> list[str]:
    """The host's tensors, with those of the norm between the steps."""
    return [*tensors(tail.before), f"{attribute}.weight", f"{attribute}.bias", *tensors(tail.after)]


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
    tail = Tail(
        tuple(before),
        "batch_norm",
        (f"x = {attribute}(x)",),
        tuple(after),
        init_lines=(f"{attribute} = {layer}",),
    )
    closing = _closing(rng, 0.3, ("softmax", "softmax", "max", "min", "logsumexp"), after)
    module = closing.behind(linear_module(linear, tail, rng), rng)
    name = rng.choice(("batchnorm_kernel", "column_kernel", "fused_kernel"))
    kernel = _column_kernel(name, tail)
    wrong = kernel.replace("rstd = tl.rsqrt(", "rstd = 1.0 / (")
    functions = (kernel, *closing.functions)
    why = (
        f"{why_fused(tail, rng)} Training mode normalises over the batch, so a program walks down a strip "
        "of columns three times."
    )
    host = _column_host((linear.torch, "M, N = x.shape"), tail, name, attribute, closing)
    rest = replace(tail, before=())
    plain, tuned = own_products(linear, before, rng)
    versions = [
        Version("naive", functions, host, why),
        *(
            Version(
                grade,
                (own.function, _column_kernel(name, rest), *functions[1:]),
                _column_host(own.host, rest, name, attribute, closing),
                f"{own.thinking} A second kernel walks down strips of columns.",
            )
            for grade, own in with_grades(plain, tuned)
        ),
        Version("mistake", (wrong, *functions[1:]), host, why, "missing_root"),
    ]
    return _closed(linear_draft("linear_batchnorm", linear, tail, module, versions, rng), closing)


def _column_kernel(name: str, tail: Tail) -> str:
    steps = [*tail.before, _AFFINE, *tail.after]
    arguments = ["x_ptr", *pointers(steps), "out_ptr", *scalar_names(steps), "M", "N", "eps"]
    load = [
        "rows = start + rm",
        "mask = (rows < M) & (cols < N)",
        "x = tl.load(x_ptr + rows * N + cols, mask=mask, other=0.0)",
        *tile_lines(tail.before, _COLUMN),
    ]
    body = [
        "cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]",
        "rm = tl.arange(0, BLOCK_M).to(tl.int64)[:, None]",
        "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
        *_turns([*load, "acc += tl.where(mask, x, 0.0)"]),
        "mean = tl.sum(acc, axis=0)[None, :] / M",
        "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
        *_turns([*load, "diff = tl.where(mask, x - mean, 0.0)", "acc += diff * diff"]),
        "rstd = tl.rsqrt(tl.sum(acc, axis=0)[None, :] / M + eps)",
        *_turns(
            [
                *load,
                "x = (x - mean) * rstd",
                *tile_lines([_AFFINE, *tail.after], _COLUMN),
                "tl.store(out_ptr + rows * N + cols, x, mask=mask)",
            ]
        ),
    ]
    return function(name, [*arguments, "BLOCK_M: tl.constexpr", "BLOCK_N: tl.constexpr"], body)


def _turns(lines: Sequence[str]) -> list[str]:
    return ["for start in range(0, M, BLOCK_M):", *(f"    {line}" for line in lines)]


def _column_host(
    begin: Sequence[str], tail: Tail, name: str, attribute: str, closing: _Closing
) -> tuple[str, ...]:
    """From the rows `x`, which `begin` makes with their sizes M and N."""
    arguments = [
        "x", *_ordered(tail, attribute), "out", *scalar_values(tail.steps), "M", "N", f"{attribute}.eps",
        "BLOCK_M=64", "BLOCK_N=32",
    ]  # fmt: skip
    return (
        *begin,
        "out = torch.empty_like(x)",
        "grid = (triton.cdiv(N, 32),)",
        *call(f"{name}[grid]", arguments).split("\n"),
        *closing.host,
        "return out",
    )
