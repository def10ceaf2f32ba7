"""Composition of a chain behind a convolution: segments of one launch each, and the host lines."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_core.problems.modules.convolution.gemm_kernels import axes
from kernel_core.problems.modules.convolution.tail_kernels import (
    Launch,
    Segment,
    axis_kernel,
    flat_kernel,
    row_kernel,
)
from kernel_core.problems.modules.convolution.tail_norms import (
    batch_norm_kernels,
    group_norm_kernel,
    instance_norm_kernel,
    layer_norm_kernel,
    statistics_name,
)
from kernel_core.problems.modules.convolution.tail_ops import ELEMENTWISE, Op
from kernel_core.problems.modules.convolution.tail_planes import plane_kernel
from kernel_core.problems.modules.convolution.tail_pools import PER_AXIS, pool_kernel, pool_lines

_NAMES = {
    "reduce_channels": "channel_{detail}_kernel",
    "reduce_depth": "depth_{detail}_kernel",
    "reduce_space": "plane_{detail}_kernel",
    "reduce_sample": "sample_{detail}_kernel",
    "pool": "{detail}_pool_kernel",
    "batch_norm": "normalize_kernel",
    "softmax": "channel_softmax_kernel",
    "softmax_space": "plane_softmax_kernel",
    "center_space": "subtract_mean_kernel",
}


def segments(ops: Sequence[Op], fuse: bool) -> list[Segment]:
    """Operators in launches. Unfused, elementwise runs are launches of their own."""
    found: list[tuple[list[Op], Op | None, list[Op]]] = []
    run: list[Op] = []
    for op in ops:
        if op.kind in ELEMENTWISE:
            run.append(op)
            continue
        if not fuse and run:
            found.append((run, None, []))
            run = []
        elif run and found:
            found[-1][2].extend(run)
            run = []
        found.append((run, op, []))
        run = []
    if run and (not fuse or not found):
        half = len(run) // 2 if not fuse and not found else 0
        found += [(part, None, []) for part in (run[:half], run[half:]) if part]
    elif run:
        found[-1][2].extend(run)
    named: list[Segment] = []
    for pre, core, post in found:
        name = _NAMES.get(core.kind, f"{core.kind}_kernel") if core else "elementwise_kernel"
        name = name.replace("{detail}", core.detail if core else "")
        taken = [one.name for one in named]
        while name in taken:
            name = f"second_{name}"
        named.append(Segment(name, tuple(pre), core, tuple(post)))
    return named


def functions_of(parts: Sequence[Segment], rank: int) -> list[str]:
    """The Triton functions of all segments."""
    texts: list[str] = []
    for part in parts:
        if part.kind == "batch_norm":
            texts += batch_norm_kernels(part)
        elif part.kind == "pool":
            texts.append(pool_kernel(part, rank))
        else:
            make = {
                "flat": flat_kernel,
                "group_norm": group_norm_kernel,
                "instance_norm": instance_norm_kernel,
                "layer_norm": layer_norm_kernel,
                "softmax_space": plane_kernel,
                "center_space": plane_kernel,
                "reduce_space": row_kernel,
                "reduce_sample": row_kernel,
            }.get(part.kind, axis_kernel)
            texts.append(make(part))
    ops = [op for part in parts for op in (*part.pre, *part.post)]
    for op in ops:
        if op.kind == "second":
            texts = [_with_second(text, op.attribute) for text in texts]
    host = [PER_AXIS[rank]] if any(part.kind == "pool" for part in parts) else []
    return [*dict.fromkeys(op.helper for op in ops if op.helper), *texts, *host]


def _with_second(text: str, name: str) -> str:
    """The function with a second tensor of the first one's shape: it is read wherever `x_ptr` is read."""
    if f"{name}_ptr" not in text:
        return text
    lines = []
    for line in text.split("\n"):
        lines.append(line)
        if line.lstrip().startswith("x_ptr += "):
            lines.append(line.replace("x_ptr", f"{name}_ptr"))
        elif line.lstrip().startswith("v = tl.load(x_ptr"):
            lines.append(line.replace("v = tl.load(x_ptr", f"{name} = tl.load({name}_ptr"))
    return "\n".join(lines)


def host_lines(
    parts: Sequence[Segment], rank: int, attribute: str, launch: Launch, front: Segment | None = None
) -> list[str]:
    """The body of `forward`: torch's convolution and one launch for each segment, a pool at times first."""
    lines = []
    if front is not None:
        lines = ["x = x.contiguous()", f"N, C, {axes(rank, '@')} = x.shape"]
        lines += pool_lines(front, rank, "x", "pooled", launch)
    lines.append(f"x = self.{attribute}({'x' if front is None else 'pooled'}).contiguous()")
    fresh = False
    for position, part in enumerate(parts):
        source = "x" if position == 0 else f"y{position}"
        target = "y" if position == len(parts) - 1 else f"y{position + 1}"
        needs = not (part.kind == "flat" and not part.wants_channel())
        if needs and part.kind == "pool":
            lines.append(f"N, C, {axes(rank, '@')} = {source}.shape")
            fresh = False
        elif needs and not fresh:
            lines.append(f"N, C = {source}.shape[:2]")
            if part.kind != "reduce_depth":
                lines.append(f"S = {source}.numel() // (N * C)")
                fresh = True
        lines += _launch_lines(part, rank, source, target, launch)
        fresh = fresh and part.kind in (
            "flat",
            "group_norm",
            "instance_norm",
            "batch_norm",
            "layer_norm",
            "softmax",
            "softmax_space",
            "center_space",
        )
    return [*lines, "return y"]


def _launch_lines(part: Segment, rank: int, source: str, target: str, launch: Launch) -> list[str]:
    own = "".join(f"{text}, " for _, text in part.arguments)
    core = part.core
    empty = f"{target} = torch.empty_like({source})"
    flat = f"BLOCK={launch.flat}{launch.options}"
    row = f"BLOCK={launch.row}{launch.options}"
    name = part.name
    if core is None:
        if part.wants_channel():
            grid = f"(N * C, triton.cdiv(S, {launch.flat}))"
            return [empty, f"{name}[{grid}]({source}, {own}{target}, C, S, {flat})"]
        grid = f"(triton.cdiv({source}.numel(), {launch.flat}),)"
        return [empty, f"{name}[{grid}]({source}, {own}{target}, {source}.numel(), {flat})"]
    norm = f"self.{core.attribute}"
    if core.kind == "group_norm":
        return [
            empty,
            f"G = {norm}.num_groups",
            f"{name}[(N * G,)](",
            f"    {source}, {norm}.weight, {norm}.bias, {own}{target}, C, S, G, {norm}.eps, {row},",
            ")",
        ]
    if core.kind == "instance_norm":
        return [empty, f"{name}[(N * C,)]({source}, {own}{target}, C, S, {norm}.eps, {row})"]
    if core.kind == "batch_norm":
        return [empty, *_batch_norm_lines(part, source, target, launch)]
    if core.kind == "layer_norm":
        return [
            empty,
            f"W = {source}.shape[-1]",
            f"rows = {source}.numel() // W",
            f"{name}[(triton.cdiv(rows, 16),)](",
            f"    {source}, {norm}.weight, {norm}.bias, {own}{target}, rows, C, S, W, {norm}.eps,",
            f"    BLOCK_R=16, BLOCK_W=triton.next_power_of_2(W){launch.options},",
            ")",
        ]
    if core.kind == "pool":
        return pool_lines(part, rank, source, target, launch)
    if core.kind in ("softmax_space", "center_space"):
        return [empty, f"{name}[(N * C,)]({source}, {own}{target}, C, S, {row})"]
    return _reduction_lines(part, rank, source, target, launch)


def _batch_norm_lines(part: Segment, source: str, target: str, launch: Launch) -> list[str]:
    assert part.core is not None
    norm = f"self.{part.core.attribute}"
    own = "".join(f"{text}, " for _, text in part.arguments)
    first = "".join(f"{text}, " for op in part.pre for _, text in op.arguments)
    return [
        f"mean = torch.empty((N, C), device={source}.device, dtype=torch.float32)",
        "var = torch.empty_like(mean)",
        f"{statistics_name(part)}[(N * C,)](",
        f"    {source}, {first}mean, var, C, S, BLOCK={launch.row}{launch.options}",
        ")",
        f"{part.name}[(N * C, triton.cdiv(S, {launch.flat}))](",
        f"    {source}, mean, var, {norm}.weight, {norm}.bias, {own}{target}, N, C, S, {norm}.eps,",
        f"    BLOCK={launch.flat}, BLOCK_N=triton.next_power_of_2(N){launch.options},",
        ")",
    ]


def _reduction_lines(part: Segment, rank: int, source: str, target: str, launch: Launch) -> list[str]:
    core = part.core
    assert core is not None
    own = "".join(f"{text}, " for _, text in part.arguments)
    options = launch.options
    shape = {
        "reduce_channels": f"(N, 1, *{source}.shape[2:])" if core.keep else f"(N, *{source}.shape[2:])",
        "reduce_depth": f"(N, C, 1, *{source}.shape[3:])" if core.keep else f"(N, C, *{source}.shape[3:])",
        "reduce_space": f"(N, C, {', '.join(['1'] * rank)})" if core.keep else "(N, C)",
        "reduce_sample": f"(N, 1, {', '.join(['1'] * rank)})" if core.keep else "(N,)",
    }.get(core.kind, "")
    made = f"{target} = torch.empty({shape}, device={source}.device, dtype={source}.dtype)"
    if core.kind == "softmax":
        made = f"{target} = torch.empty_like({source})"
    if core.kind in ("reduce_space", "reduce_sample"):
        rows = "N" if core.kind == "reduce_sample" else "N * C"
        return [made, f"{part.name}[({rows},)]({source}, {own}{target}, C, S, BLOCK={launch.row}{options})"]
    rows, sizes = ("N * C", "C, R, S") if core.kind == "reduce_depth" else ("N", "C, S")
    before = []
    if core.kind == "reduce_depth":
        before = [f"R = {source}.shape[2]", f"S = {source}.numel() // (N * C * R)"]
    grid = f"({rows}, triton.cdiv(S, {launch.pixels}))"
    return [
        *before,
        made,
        f"{part.name}[{grid}]({source}, {own}{target}, {sizes}, BLOCK={launch.pixels}{options})",
    ]
