"""Operators over the pixels of a plane that keep its shape: a softmax, and the difference to the mean."""

from __future__ import annotations

import random

from kernel_core.problems.modules.convolution.tail_kernels import (
    LOAD,
    Segment,
    deeper,
    function,
    lines_of,
    parameters,
)
from kernel_core.problems.modules.convolution.tail_ops import Op
from kernel_core.problems.modules.convolution.tail_values import centred, softmax_space


def draw_softmax_space(rng: random.Random, rank: int) -> Op:
    """Softmax over all pixels of a channel, through a view with one axis for them."""
    names = "b, c, d, h, w" if rank == 3 else rng.choice(("b, c, h, w", "n, c, h, w"))
    dim = rng.choice(("2", "2", "-1"))
    call = rng.choice(("torch.softmax", "F.softmax"))
    long = (
        f"{names} = x.shape",
        f"x = x.view({names[0]}, c, -1)",
        f"x = {call}(x, dim={dim})",
        f"x = x.view({names})",
    )
    short = (f"x = {call}(x.flatten(2), dim={dim}).view(x.shape)",)
    middle = (
        "shape = x.shape",
        f"x = {call}(x.flatten(start_dim=2), dim={dim})",
        "x = x.reshape(shape)",
    )
    return Op("softmax_space", "softmax_space", rng.choice((long, long, short, middle)), softmax_space)


def draw_center(rng: random.Random, rank: int) -> Op:
    """The difference to the plane's own mean."""
    axes = ", ".join(str(2 + place) for place in range(rank))
    axes = rng.choice((f"({axes})", f"[{axes}]"))
    mean = rng.choice((f"torch.mean(x, dim={axes}, keepdim=True)", f"x.mean(dim={axes}, keepdim=True)"))
    return Op("sub_mean", "center_space", (f"x = x - {mean}",), centred)


def plane_kernel(segment: Segment) -> str:
    """A program a plane: one loop for the statistics, with a running maximum, and one for the results."""
    core = segment.core
    assert core is not None
    softmax = core.kind == "softmax_space"
    pre = lines_of(segment.pre)
    values = deeper(
        "s = start + tl.arange(0, BLOCK)",
        "mask = s < S",
        LOAD.replace("@", "s"),
        *pre,
    )
    if softmax:
        start = ['best = -float("inf")', "total = 0.0"]
        each = [
            'v = tl.where(mask, v, -float("inf"))',
            "top = tl.maximum(best, tl.max(v))",
            "total = total * tl.exp(best - top) + tl.sum(tl.exp(v - top))",
            "best = top",
        ]
        end, result = [], "v = tl.exp(v - best) / total"
    else:
        start = ["total = tl.zeros((BLOCK,), dtype=tl.float32)"]
        each = ["total += tl.where(mask, v, 0.0)" if pre else "total += v"]
        end, result = ["mean = tl.sum(total) / S"], "v = v - mean"
    return function(
        f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, C, S, BLOCK: tl.constexpr)",
        "plane = tl.program_id(0)",
        *(["c = plane % C"] if segment.wants_channel() else []),
        "x_ptr += plane.to(tl.int64) * S",
        "y_ptr += plane.to(tl.int64) * S",
        *start,
        "for start in range(0, S, BLOCK):",
        *values,
        *deeper(*each),
        *end,
        "for start in range(0, S, BLOCK):",
        *values,
        *deeper(result, *lines_of(segment.post), "tl.store(y_ptr + s, v, mask=mask)"),
    )
