"""Commands that run a module of this package in a process of its own.

The working folder is often the one that a user keeps kernels in. `python -m` would import from it first: a
`cuda.py` or `types.py` there would replace a module of ours, and would run outside of any sandbox.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kernel_core.errors import without_secrets


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command of `python -m MODULE ARGUMENTS` that does not import from the working folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def import_environment() -> dict[str, str]:
    """Return this process's environment without secrets, for a process that runs problems or candidates.

    Its `PYTHONPATH` begins with this package's folder. Entries that are relative depend on the working folder
    and are dropped; so are empty ones, which name it.
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    absolute = [entry for entry in given if Path(entry).is_absolute()]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *absolute])
    return {**without_secrets(os.environ), "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
