"""Two reductions of a long row in one pass, where the second reads a result of the first.

- The maximum, and the sum of exponentials below it: a running maximum rescales the sum so far (Milakov and
  Gimelshein, "Online normalizer calculation for softmax", 2018).
- The sum, and the sum of squared distances from the mean: a block adds its own, and the distance of its mean
  from that so far (Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernel_core.generator.ir import Value, is_point
from kernel_core.generator.schedules.rows import LOWEST, Rows, filled, identity


def pairs_of(reductions: Sequence[Value]) -> dict[int, Value]:
    """The second reduction by the id of the first, both of them among `reductions`; none in float64."""
    own = {id(value) for value in reductions}
    sums = [value for value in reductions if value.kind == "sum" and value.dtype is not torch.float64]
    pairs = {id(first): value for value in sums if (first := _first_of(value)) is not None}
    return {first: second for first, second in pairs.items() if first in own}


def _first_of(second: Value) -> Value | None:
    """The maximum of a softmax's sum, or the sum of a variance's."""
    term = second.inputs[0]
    if not (is_point(term, "exp") or is_point(term, "square")) or not is_point(term.inputs[0], "sub_"):
        return None
    x, first = term.inputs[0].inputs
    kind = "amax"
    if is_point(term, "square"):
        first, kind = first.inputs[0] if is_point(first, "true_divide") else None, "sum"
    is_reduced = isinstance(first, Value) and first.op == "reduce" and first.kind == kind
    return first if is_reduced and first.dims == second.dims and first.inputs[0] is x else None


def begin(rows: Rows, kind: str, first: str, second: str) -> None:
    """Write the values before the first block; `kind` is that of the first reduction."""
    for name, value in ((first, identity(kind, torch.float32)), (second, "0.0")):
        tile = rows.shape.tile.replace("BLOCK", "1")
        rows.kernel.line(f"{name} = {filled(tile, value, 'tl.float32') if rows.shape.has_tile else value}")


def step(rows: Rows, kind: str, first: str, second: str, x: str) -> None:
    """Write the lines for a block."""
    (_raised if kind == "amax" else _squared)(rows, first, second, x)


def _raised(rows: Rows, top: str, total: str, x: str) -> None:
    """A row that begins with infinities has the shift 0."""
    kernel, keep = rows.kernel, rows.shape.keep
    new, shift = (kernel.fresh(name, kernel.depth) for name in ("new_top", "shift"))
    kernel.line(f"{new} = tl.maximum({top}, tl.max({x}, {keep}))")
    kernel.line(f"{shift} = tl.where({new} == {LOWEST}, 0.0, {new})")
    kernel.line(f"{total} = {total} * tl.exp({top} - {shift}) + tl.sum(tl.exp({x} - {shift}), {keep})")
    kernel.line(f"{top} = {new}")


def _squared(rows: Rows, total: str, squares: str, x: str) -> None:
    """`start` elements of the row stand before the block."""
    kernel, keep = rows.kernel, rows.shape.keep
    added, number, mean, apart, shift = (
        kernel.fresh(name, kernel.depth) for name in ("added", "number", "block_mean", "apart", "shift")
    )
    kernel.line(f"{added} = tl.sum({x}, {keep})")
    kernel.line(f"{number} = tl.minimum({rows.length} - start, BLOCK)")
    kernel.line(f"{mean} = {added} / {number}")
    kernel.line(f"{apart} = tl.where({rows.inside()}, {x} - {mean}, 0.0)")
    kernel.line(f"{shift} = {mean} - {total} / tl.maximum(start, 1)")
    joined = f"{shift} * {shift} * {number} * (start / (start + {number}))"
    kernel.line(f"{squares} += tl.sum({apart} * {apart}, {keep}) + {joined}")
    kernel.line(f"{total} += {added}")
