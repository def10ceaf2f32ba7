"""Audit events of a candidate's process: some are noted, some denied."""

from __future__ import annotations

import sys
from typing import Any

_TELLING = (
    *("gc.get_objects", "gc.get_referrers", "sys.settrace", "sys.setprofile"),
    *("ctypes.dlopen", "os.kill", "os.fork", "socket.connect"),
)
_DENIED_TO_COMPILERS = ("os.system", "os.fork", "os.exec", "socket.connect", "pty.")
_DRIVERS = ("libcuda.so.1", "libnvidia-ml.so.1")
_DENIED = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "pty.")


def watch(may_compile: bool) -> list[str]:
    """Record notable audit events by name, and deny those that no kernel needs. Python code cannot remove the
    hook. On a GPU Triton itself starts an assembler and a C compiler here, so there only the sandbox limits
    programs."""
    seen: list[str] = []
    denied = _DENIED_TO_COMPILERS if may_compile else _DENIED

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _TELLING and (note := _in_words(event, arguments)) not in ("", *seen):
            seen.append(note)
        if event.startswith(denied):
            raise PermissionError(f"{event} is not allowed to a candidate")

    sys.addaudithook(hook)
    return seen


def _in_words(event: str, arguments: tuple[Any, ...]) -> str:
    """The event, and which library is opened; empty for those of the driver, which judge, torch and Triton
    open on a GPU in every candidate's process."""
    if event != "ctypes.dlopen":
        return event
    return "" if str(arguments[0]).endswith(_DRIVERS) else f"{event}: {arguments[0]}"
