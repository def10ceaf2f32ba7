"""Triton's interpreter, as the judge of a CPU prepares it, does what a GPU would do.

Another Triton than the installed one is tested from a folder that holds it:
`pip install --no-deps --target FOLDER/site-packages triton==3.6.0`, then
`PYTHONPATH=FOLDER/site-packages pytest tests/gym/test_patches.py`.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton

from kernel_core.gym.untrusted.interpreter.compiled_semantics import Undecidable, as_compiled


@pytest.mark.exhaustive
def test_what_kernels_commonly_say_means_what_it_means_to_torch(tmp_path: Path) -> None:
    """In a process of its own: an interpreter is for good."""
    path = filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")))
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, str(Path(__file__).with_name("idioms.py")), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1, "\n".join(lines)
    assert lines[0].endswith(f"Triton {triton.__version__}")


def test_several_targets_of_one_assignment_are_refused() -> None:
    """As Triton's compiler does."""
    with pytest.raises(Undecidable, match="several targets"):
        as_compiled(set()).visit(ast.parse("a = b = 0"))
