"""Scan schedule: a program walks along one or several rows, carrying the last running value."""

from __future__ import annotations

from kernel_core.generator.schedules.rows import MULTIPLY, Rows, identity
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
_EXTREMES = {"amax": "maximum", "amin": "minimum"}


def write(context: Context) -> Written:
    """A running sum, product or logarithm of a sum of exponentials."""
    anchor = context.region.anchor
    rows = Rows(context, anchor.shape, (anchor.dim,))
    kernel, x, kind = rows.kernel, anchor.inputs[0], anchor.kind
    neutral = 'float("-inf")' if kind == "logaddexp" else identity(kind, x.dtype)
    helpers = {"prod": {"multiply": MULTIPLY}, "logaddexp": {"log_add_exp": LOGADDEXP}}.get(kind, {})
    if kind in _EXTREMES:
        helpers = {_EXTREMES[kind]: EXTREME.format(name=_EXTREMES[kind])}
    axis = rows.shape.axis if rows.shape.has_tile else 0
    keep = rows.shape.keep
    if rows.shape.is_looped:
        other = rows.shape.tile.replace("BLOCK", "1")
        kind_of = "tl.float32" if x.dtype.is_floating_point else "tl.int64"
        kernel.line(f"carry = tl.full({other}, {neutral}, dtype={kind_of})")
        keep = keep if rows.shape.has_tile else "axis=0, keep_dims=True"
    coords = rows.coords(True)
    if kind != "logaddexp":
        rows.fill([(x, kind)])
    for _ in rows.walk():
        element = rows.element(x, coords, neutral, "sum")
        text = {
            "sum": f"tl.cumsum({element}, axis={axis})", "prod": f"tl.cumprod({element}, axis={axis})",
            "logaddexp": f"tl.associative_scan({element}, {axis}, log_add_exp)",
            "amax": f"tl.associative_scan({element}, {axis}, maximum)",
            "amin": f"tl.associative_scan({element}, {axis}, minimum)",
        }[kind]  # fmt: skip
        kernel.line(f"running = {text}")
        if rows.shape.is_looped:
            joined = {
                "sum": "carry + running",
                "prod": "carry * running",
                "logaddexp": "log_add_exp(carry, running)",
                "amax": "tl.maximum(carry, running)",
                "amin": "tl.minimum(carry, running)",
            }
            kernel.line(f"running = {joined[kind]}")
            final = {
                "sum": f"carry += tl.sum({element}, {keep})",
                "prod": f"carry *= tl.reduce({element}, {axis}, multiply, keep_dims=True)",
                "logaddexp": "carry = log_add_exp(carry, "
                f"tl.reduce({element}, {axis}, log_add_exp, keep_dims=True))",
                "amax": f"carry = tl.maximum(carry, tl.max({element}, {keep}))",
                "amin": f"carry = tl.minimum(carry, tl.min({element}, {keep}))",
            }[kind]  # fmt: skip
        kernel.done[id(anchor)] = ("running", frozenset(), None)
        store_outputs(kernel, context.region, anchor, coords)
        if rows.shape.is_looped:
            kernel.line(final)
    plan = "Each program scans whole rows in registers."
    if rows.shape.is_looped:
        plan = "Each program scans its rows in blocks and carries the running value."
    return rows.finish(plan, helpers)
