"""Lines of a command: results on standard output, progress on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


def say(text: str = "", end: str = "\n") -> None:
    """Write to standard output at once, unwrapped and unstyled."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


@contextlib.contextmanager
def working(doing: str) -> Iterator[None]:
    """Say on standard error what the block does: on a terminal with the seconds so far, else one line."""
    if not sys.stderr.isatty():
        sys.stderr.write(f"{doing} …\n")
        sys.stderr.flush()
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        shown.add_task(doing, total=None)
        yield
