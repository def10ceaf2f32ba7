"""Scan schedule: a program walks along one or several rows, carrying the last running value."""

from __future__ import annotations

from kernel_core.generator.schedules.rows import LOWEST, MULTIPLY, Rows, accumulator, filled, identity
from kernel_core.generator.schedules.written import Context, Written, store_outputs

LOGADDEXP = """@triton.jit
def log_add_exp(a, b):
    top = tl.maximum(a, b)
    return tl.where(top == float("-inf"), top, top + tl.log(tl.exp(a - top) + tl.exp(b - top)))
"""
EXTREME = """@triton.jit
def {name}(a, b):
    return tl.{name}(a, b)
"""
_JOINED = {
    "sum": "{} + {}", "prod": "{} * {}", "logaddexp": "log_add_exp({}, {})", "amax": "maximum({}, {})",
    "amin": "minimum({}, {})",
}  # fmt: skip
"""Running values of two blocks as that of both."""


def write(context: Context) -> Written:
    """A running sum, product or logarithm of a sum of exponentials."""
    anchor = context.region.anchor
    rows = Rows(context, anchor.shape, (anchor.dim,))
    kernel, x, kind = rows.kernel, anchor.inputs[0], anchor.kind
    neutral = LOWEST if kind == "logaddexp" else identity(kind, x.dtype)
    function = _JOINED[kind].partition("(")[0]
    texts = {"prod": ("multiply", MULTIPLY), "logaddexp": (function, LOGADDEXP)}
    helper, text = texts.get(kind, (function, EXTREME.format(name=function)))
    axis, keep = rows.shape.axis if rows.shape.has_tile else 0, rows.shape.keep
    if rows.shape.is_looped:
        tile = rows.shape.tile.replace("BLOCK", "1")
        kernel.line(f"carry = {filled(tile, neutral, accumulator(x.dtype))}")
        keep = keep if rows.shape.has_tile else "axis=0, keep_dims=True"
    coords = rows.coords(True)
    if kind != "logaddexp":
        rows.fill([(x, kind)])
    for _ in rows.walk():
        element = rows.element(x, coords, neutral, "sum")
        scanned = f"tl.associative_scan({element}, {axis}, {helper})"
        if kind in ("sum", "prod"):
            scanned = f"tl.cum{kind}({element}, axis={axis})"
        kernel.line(f"running = {scanned}")
        if rows.shape.is_looped:
            kernel.line(f"running = {_JOINED[kind].format('carry', 'running')}")
        kernel.done[id(anchor)] = ("running", frozenset(), None)
        store_outputs(kernel, context.region, anchor, coords)
        if rows.shape.is_looped:
            whole = f"tl.reduce({element}, {axis}, {helper}, keep_dims=True)"
            whole = f"tl.sum({element}, {keep})" if kind == "sum" else whole
            kernel.line(f"carry = {_JOINED[kind].format('carry', whole)}")
    plan = "Each program scans whole rows in registers."
    if rows.shape.is_looped:
        plan = "Each program scans its rows in blocks and carries the running value."
    is_plain = kind == "sum" or (kind == "prod" and not rows.shape.is_looped)
    return rows.finish(plan, {} if is_plain else {helper: text})
