"""The definition of a decoy for the judge and the replay: a kernel beside the work of torch's operators."""

from __future__ import annotations

from typing import Any

ECHOES = 2
"""Draws of other inputs that a trace is played on."""
NEGLIGIBLE_SHARE = 0.01
"""Below this share of the time, or of the outputs, a candidate's own kernels are a decoy."""


def library_works(trace: dict[str, Any] | None) -> bool:
    """Return True if there is a trace, and it has operators of torch's beyond views and allocation, which are
    not recorded."""
    return trace is not None and any("op" in operation for operation in trace["operations"])
