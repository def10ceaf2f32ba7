"""Maximum and sum of exponentials of a long row in one pass.

A running maximum rescales the sum so far (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernel_core.generator.ir import Value, is_point
from kernel_core.generator.schedules.rows import LOWEST, Rows


def pairs_of(reductions: Sequence[Value]) -> dict[int, Value]:
    """The denominator of a softmax by the id of its maximum among `reductions`; none in float64."""
    own = {id(value) for value in reductions}
    sums = [value for value in reductions if value.kind == "sum" and value.dtype is not torch.float64]
    shifted = [value for value in sums if _is_shifted(value.inputs[0], value.dims)]
    pairs = {id(value.inputs[0].inputs[0].inputs[1]): value for value in shifted}
    return {top: total for top, total in pairs.items() if top in own}


def _is_shifted(raised: Value, dims: tuple[int, ...]) -> bool:
    if not is_point(raised, "exp") or not is_point(raised.inputs[0], "sub_"):
        return False
    x, top = raised.inputs[0].inputs
    return (
        isinstance(
            top, Value,
        ) and top.op == "reduce" and top.kind == "amax" and top.dims == dims and top.inputs[0] is x
    )  # fmt: skip


def begin(rows: Rows, top: str, total: str) -> None:
    """Write the values before the first block."""
    if rows.shape.has_tile:
        tile = rows.shape.tile.replace("BLOCK", "1")
        rows.kernel.line(f"{top} = tl.full({tile}, {LOWEST}, dtype=tl.float32)")
        rows.kernel.line(f"{total} = tl.zeros({tile}, dtype=tl.float32)")
    else:
        rows.kernel.line(f"{top} = {LOWEST}")
        rows.kernel.line(f"{total} = 0.0")


def step(rows: Rows, top: str, total: str, x: str) -> None:
    """Write the lines for a block; a row that begins with infinities has the shift 0."""
    kernel, keep = rows.kernel, rows.shape.keep
    new, shift = (kernel.fresh(name, kernel.depth) for name in ("new_top", "shift"))
    kernel.line(f"{new} = tl.maximum({top}, tl.max({x}, {keep}))")
    kernel.line(f"{shift} = tl.where({new} == {LOWEST}, 0.0, {new})")
    kernel.line(f"{total} = {total} * tl.exp({top} - {shift}) + tl.sum(tl.exp({x} - {shift}), {keep})")
    kernel.line(f"{top} = {new}")
