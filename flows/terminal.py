"""Plain lines on standard output: unwrapped, unstyled, for people and for programs that read them."""

from __future__ import annotations

import sys


def say(text: str = "", end: str = "\n") -> None:
    """Write to standard output at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()
