"""Row schedule: a program owns one or several results of a reduction and walks along what is reduced.

Operators before the reductions are computed as the row is loaded, those behind them before it is stored. A
row that fits is loaded once; a longer one is walked in blocks, once for each reduction that needs another's.
"""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.generator.index import Index
from kernel_core.generator.ir import Value, walk
from kernel_core.generator.schedules.online import begin, pairs_of, step
from kernel_core.generator.schedules.rows import MULTIPLY, Rows, accumulator, filled, identity
from kernel_core.generator.schedules.written import Context, Written, places_of, store_at
from kernel_core.generator.sizes import product

_FUNCTIONS = {"sum": "tl.sum", "amax": "tl.max", "amin": "tl.min", "any": "tl.max", "all": "tl.min"}


def write(context: Context) -> Written:
    """All reductions of a region over the same axes, with what stands before and behind them."""
    anchor = context.region.anchor
    rows = Rows(context, anchor.inputs[0].shape, anchor.dims)
    kernel, region = rows.kernel, context.region
    helpers: dict[str, str] = {}
    reductions = [value for value in region.core.values() if value.op == "reduce"]
    rows.fill([(value.inputs[0], value.kind) for value in reductions])
    online = pairs_of(reductions) if rows.shape.is_looped else {}
    levels = _levels(reductions, region.core, {id(second) for second in online.values()})
    for level in sorted(set(levels.values())):
        same = [value for value in reductions if levels[id(value)] == level]
        (_walk_level if rows.shape.is_looped else _reduce_level)(rows, same, helpers, online)

    def place(value: Value) -> tuple[list[Index], list[Index], Any]:
        coords = rows.coords(value.op not in ("reduce", "gather"))
        return coords, coords, value.shape

    places = places_of(kernel, region, anchor, rows.coords(False), place)
    full_size = int(product(rows.domain))
    results = int(product(anchor.shape))
    full = [
        value for value in region.outputs if int(product(value.shape)) == full_size and full_size != results
    ]
    for value in region.outputs:
        if value not in full:
            store_at(kernel, value, places[id(value)])
    if full:
        for _ in rows.walk():
            for value in full:
                store_at(kernel, value, places[id(value)])
    return rows.finish(_plan(rows, len(set(levels.values())), bool(full)), helpers)


def _plan(rows: Rows, passes: int, stores: bool) -> str:
    along = "column" if rows.shape.axis == 0 else "row"
    what = f"a block of {along}s" if rows.shape.has_tile else f"one {along}"
    if not rows.shape.is_looped:
        return f"Each program loads {what} once and reduces in registers."
    turns = passes + stores
    return f"Each program reduces {what} in blocks, {turns} pass{'es' * (turns > 1)}."


def _levels(reductions: list[Value], core: dict[int, Value], online: set[int]) -> dict[int, int]:
    """Number of the pass that computes each reduction; one that is `online` has that of its first."""
    levels: dict[int, int] = {}
    depth: dict[int, int] = {}
    for value in walk(tuple(reductions)):
        below = max((depth[id(tensor)] for tensor in value.tensors), default=0)
        depth[id(value)] = below + (value.op == "reduce" and id(value) in core and id(value) not in online)
        if value.op == "reduce" and id(value) in core:
            levels[id(value)] = depth[id(value)]
    return levels


def _reduce_level(
    rows: Rows, reductions: list[Value], helpers: dict[str, str], _online: dict[int, Value]
) -> None:
    """Reduce rows that are loaded whole."""
    coords = rows.coords(True)
    for value in reductions:
        text = _final(rows, value, _element(rows, value, coords), helpers)
        if value.kind == "sum":
            _finish(rows, value, rows.kernel.named(_name(value), text))
        else:
            name = rows.kernel.fresh(_name(value))
            rows.kernel.line(f"{name} = {text}")
            _finish(rows, value, name)


def _walk_level(
    rows: Rows, reductions: list[Value], helpers: dict[str, str], online: dict[int, Value]
) -> None:
    """Reduce rows in blocks; an extreme with its index, and pairs of `online`, are reduced together."""
    kernel, coords = rows.kernel, rows.coords(True)
    own = {id(second) for second in online.values()}
    indexed = {(id(value.inputs[0]), value.kind[3:]) for value in reductions if value.kind.startswith("arg")}
    squares = {id(online[id(value)]) for value in reductions if id(value) in online and value.kind == "sum"}
    names = {
        id(value): kernel.fresh("squares" if id(value) in squares else _name(value)) for value in reductions
    }
    plain = [
        value
        for value in reductions
        if id(value) not in own | set(online) and (id(value.inputs[0]), value.kind[1:]) not in indexed
    ]
    running = {id(value): _begin(rows, value) for value in plain}
    pairs = {
        id(value): (value.kind, names[id(value)], names[id(online[id(value)])])
        for value in reductions
        if id(value) in online
    }
    for pair in pairs.values():
        begin(rows, *pair)
    for _ in rows.walk():
        for value in plain:
            _step(rows, value, running[id(value)], _element(rows, value, coords))
        for value in reductions:
            if id(value) in pairs:
                step(rows, *pairs[id(value)], _element(rows, value, coords))
    for value in plain:
        name, last = names[id(value)], running[id(value)]
        if value.kind.startswith("arg"):
            twins = (other for other in reductions if other.kind == f"a{value.kind[3:]}")
            twin = next((other for other in twins if other.inputs[0] is value.inputs[0]), None)
            extreme = names[id(twin)] if twin else kernel.fresh("top")
            function = "tl.max" if value.kind == "argmax" else "tl.min"
            kernel.line(f"{extreme} = {function}({last}, {rows.shape.keep})")
            places = f"tl.where({last} == {extreme}, {last}_at, {rows.length})"
            kernel.line(f"{name} = tl.min({places}, {rows.shape.keep})")
        else:
            text = _final(rows, value, last, helpers)
            kernel.line(f"{name} = {text}")
            kernel.pure |= {name} if value.kind == "sum" else set()
    for value in reductions:
        _finish(rows, value, names[id(value)])


def _finish(rows: Rows, value: Value, name: str) -> None:
    rows.kernel.done[id(value)] = (name, frozenset([rows.shape.kept]), tuple(rows.coords(False)))


def _name(value: Value) -> str:
    return {"sum": "total", "amax": "top", "amin": "bottom", "any": "some", "prod": "whole"}.get(
        value.kind, value.kind
    )


def _element(rows: Rows, value: Value, coords: list[Index]) -> str:
    """Return the element to be reduced, neutral beyond the row's end."""
    kind_dtype = torch.int32 if value.kind in ("any", "all") else value.inputs[0].dtype
    neutral = {"any": "0", "all": "1"}.get(value.kind) or identity(value.kind, kind_dtype)
    return rows.element(value.inputs[0], coords, neutral, value.kind)


def _final(rows: Rows, value: Value, x: str, helpers: dict[str, str]) -> str:
    keep = rows.shape.keep
    if value.kind == "prod":
        helpers["multiply"] = MULTIPLY
        axis, keep_dims = (rows.shape.axis, ", keep_dims=True") if rows.shape.has_tile else (0, "")
        return f"tl.reduce({x}, {axis}, multiply{keep_dims})"
    if value.kind in ("argmax", "argmin"):
        return f"tl.{value.kind}({x}, {keep}).to(tl.int64)"
    text = f"{_FUNCTIONS[value.kind]}({x}, {keep})"
    return f"{text} != 0" if value.dtype is torch.bool else text


def _begin(rows: Rows, value: Value) -> str:
    kernel, tile = rows.kernel, rows.shape.tile
    x = value.inputs[0].dtype
    kind = "tl.int32" if value.kind in ("any", "all") else accumulator(x)
    neutral = {"any": "0", "all": "1"}.get(value.kind) or identity(value.kind, x)
    running = kernel.fresh("acc" if value.kind == "sum" else "best")
    kernel.line(f"{running} = {filled(tile, neutral, kind)}")
    if value.kind in ("argmax", "argmin"):
        kernel.line(f"{running}_at = tl.zeros({tile}, dtype=tl.int64)")
    return running


def _step(rows: Rows, value: Value, running: str, x: str) -> None:
    kernel = rows.kernel
    if value.kind in ("sum", "prod"):
        kernel.line(f"{running} {'+' if value.kind == 'sum' else '*'}= {x}")
    elif value.kind in ("amax", "any", "amin", "all"):
        function = "maximum" if value.kind in ("amax", "any") else "minimum"
        kernel.line(f"{running} = tl.{function}({running}, {x})")
    else:
        sign = ">" if value.kind == "argmax" else "<"
        walked = rows.shape.walked
        kernel.line(f"better = {x} {sign} {running}")
        kernel.line(f"{running}_at = tl.where(better, {walked.name}{walked.view}, {running}_at)")
        kernel.line(f"{running} = tl.where(better, {x}, {running})")
