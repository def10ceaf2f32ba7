"""Precision of the products that torch's operators compute, by the trace of a pass."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from kernel_core.gym.channel.torch_ops import has_products, operator_by_name

_HALF_NAMES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
_CUDNN = ("conv", "cudnn", "miopen", "rnn", "lstm", "gru")


def is_cudnns(operator: str) -> bool:
    """Return True if cuDNN's switch decides on TF32 for an operator of torch's, such as
    `aten::convolution`."""
    return any(word in operator for word in _CUDNN)


@functools.cache
def may_use_tf32(function: Any) -> bool:
    """Return True if a switch for TF32 may change an operator's result."""
    return has_products(function) or is_cudnns(function._schema.name)


def kinds_of_operators(trace: dict[str, Any] | None) -> set[str]:
    """Return the kinds of torch's products on float32 values in a trace, by the recorded switches."""
    kinds: set[str] = set()
    for operation in trace["operations"] if trace is not None else ():
        if "op" not in operation:
            continue
        try:
            function = operator_by_name(operation["op"], operation["overload"])
        except ValueError:
            continue  # the replay refuses such a trace
        if not may_use_tf32(function):
            continue
        dtypes = {view[1] for view in _views([operation["args"], operation["kwargs"]])}
        if dtypes & {*_HALF_NAMES}:
            kinds.add("half")
        elif "float32" in dtypes:
            cublas, cudnn = flags_of(operation)
            kinds.add("tf32" if (cudnn if is_cudnns(operation["op"]) else cublas) else "ieee")
        elif "float64" in dtypes:
            kinds.add("ieee")
    return kinds


def half_in_launches(trace: dict[str, Any] | None) -> set[str]:
    """Return `half` if a launch is given values in half precision: factors that host code made shorter."""
    launches = (
        operation for operation in (trace["operations"] if trace is not None else ()) if "launch" in operation
    )
    views = _views([[launch["args"], launch.get("reaches", [])] for launch in launches])
    return {"half"} if any(view[1] in _HALF_NAMES for view in views) else set()


def flags_of(operation: dict[str, Any]) -> tuple[bool, bool]:
    """Return the switches that an operator of a trace was called with; without a record, both are off."""
    match operation.get("tf32"):
        case [bool(cublas), bool(cudnn)]:
            return cublas, cudnn
    return False, False


def _views(value: Any) -> Iterator[list[Any]]:
    """Yield all views `[storage, dtype, ...]` in a value of a trace."""
    if isinstance(value, dict):
        view = value.get("t")
        if isinstance(view, list) and len(view) > 1:
            yield view
        else:
            yield from _views(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from _views(item)
