"""Numbers that limit a sandboxed process; `sandbox.py` sets them, and closes its standard output."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

FILE_BYTES = 64 << 20
"""The largest file of a usual sandbox."""
MOST_FORGIVEN = 3.0
"""The longest extension of a deadline for a child that waits for a processor, in units of the deadline."""


@dataclass(frozen=True, slots=True)
class Cage:
    """Limits and places of one sandboxed process.

    `memory_bytes` counts beyond what the warm process already maps; `folder` is the only place that may
    be written; `max_processes` counts the process itself.
    """

    folder: str
    user_id: int
    memory_bytes: int
    cpu_seconds: int
    max_processes: int
    file_bytes: int = FILE_BYTES
    device: str = "cpu"
    """`cuda` brings the GPU's context up before the sandbox closes, and limits data instead of addresses."""
    gpu: str = ""
    """For `cpu`: the GPU that kernels are told they run on."""

    def to_json(self) -> dict[str, Any]:
        """The limits as part of a header."""
        return asdict(self)
