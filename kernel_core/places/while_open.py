"""Runs a command for as long as standard input is open: `python -m kernel_core.places.while_open COMMAND …`.

The process that started it holds the other end, so that nothing outlives that process, however it ends. It
leads a process group of its own; when the input or the command ends, the whole group does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

_GRACE_S = 10.0


def main(command: list[str]) -> None:
    """Start the command, and end it with everything that it started."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with, args=(child,), daemon=True).start()
    sys.stdin.buffer.read()
    child.terminate()
    try:
        child.wait(_GRACE_S)
    finally:
        os.killpg(0, signal.SIGKILL)


def _end_with(child: subprocess.Popen[bytes]) -> None:
    child.wait()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
