"""The location of the CUDA toolkit, which has the compiler of CUDA C++."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def toolkit() -> Path | None:
    """The toolkit's folder; None where it is not installed."""
    folders = (os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH"))
    on_path = shutil.which("nvcc")
    places = [*(Path(folder) for folder in folders if folder), Path("/usr/local/cuda")]
    places += [Path(on_path).resolve().parents[1]] if on_path else []
    return next((place for place in places if (place / "bin" / "nvcc").exists()), None)
