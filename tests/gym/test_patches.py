"""Triton's interpreter, as the judge of a CPU prepares it, does what a GPU would do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_what_kernels_commonly_say_means_what_it_means_to_torch(tmp_path: Path) -> None:
    """In a process of its own: an interpreter is for good."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(Path(__file__).with_name("idioms.py")), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1, "\n".join(lines)
