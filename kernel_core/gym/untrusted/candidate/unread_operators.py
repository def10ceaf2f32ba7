"""Operators of torch's with results that no later work reads, such as a copy of lengths for host code.

Outputs do not come from them, so they are no part of the record. With them a kernel that gathers rows would
be a mover of data beside the library's work.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from kernel_core.gym.channel.torch_ops import operator_by_name
from kernel_core.gym.channel.trace_codec import views_in


def without_unread(
    operations: list[dict[str, Any]], outputs: list[Any], kept: Iterable[int]
) -> list[dict[str, Any]]:
    """The operations of a pass that its `outputs`, its launches or the `kept` storages need."""
    read = {view[0] for view in views_in(outputs)} | {*kept}
    kept_operations = []
    for operation in reversed(operations):
        made = {view[0] for view in operation.get("outputs", [])}
        if made and read.isdisjoint(made) and _only_gives(operation):
            continue
        read |= {view[0] for view in views_in(operation)}
        kept_operations.append(operation)
    return kept_operations[::-1]


def _only_gives(operation: dict[str, Any]) -> bool:
    """Return True if an operator writes to no argument, and leaves later random numbers as they are."""
    try:
        function = operator_by_name(operation["op"], operation["overload"])
    except ValueError:
        return False
    return not (function._schema.is_mutable or torch.Tag.nondeterministic_seeded in function.tags)
