"""The definition of a decoy for the judge and the replay: a kernel beside the work of torch's operators."""

from __future__ import annotations

from typing import Any

from kernel_core.gym.channel.trace_codec import views_in

ECHOES = 2
"""Draws of other inputs that a trace is played on."""
NEGLIGIBLE_SHARE = 0.01
"""Below this share of the time, or of the outputs, a candidate's own kernels are a decoy."""


PLAIN_COPY = "aten::clone"
_COPIES = (PLAIN_COPY, "aten::_to_copy")


def library_works(trace: dict[str, Any] | None) -> bool:
    """Return True if there is a trace with an operator of torch's that does more than copy a tensor as it
    lies. Views and allocation are not recorded."""
    return trace is not None and any(
        "op" in operation and not copies_as_it_lies(operation) for operation in trace["operations"]
    )


def copies_as_it_lies(operation: dict[str, Any]) -> bool:
    """Return True for a copy of a tensor to new memory, with its type and strides: what changes in the copy
    is the work of a pass, however little it is."""
    if operation["op"] not in _COPIES:
        return False
    (_, dtype, _, shape, strides), *_ = views_in(operation["args"])
    return all([dtype, shape, strides] == [view[1], view[3], view[4]] for view in operation["outputs"])
