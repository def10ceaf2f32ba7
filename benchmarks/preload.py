"""Libraries that change or count what processes ask of the system, built where they are used."""

from __future__ import annotations

import subprocess
from pathlib import Path


def build_preload(source: Path, folder: Path) -> Path:
    """A library for `LD_PRELOAD`, made of a C file by the machine's compiler, in `folder`."""
    library = folder / f"{source.stem}.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
