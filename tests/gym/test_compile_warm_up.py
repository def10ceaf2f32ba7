"""Compile processes are forked from one that is warm: a compilation imports nothing more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

A_COMPILATION = """
import sys
import triton
import triton.language as tl
from kernel_core.gym.untrusted.compile import compile_job

@triton.jit
def zeros(target, BLOCK: tl.constexpr):
    tl.store(target + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32))

compile_job.warm_up()
known = set(sys.modules)
arguments = {"target": {"t": [0, "float32", 0]}, "BLOCK": 64}
launch = {"launch": 0, "args": arguments, "options": {}}
compile_job._compile([zeros], launch, compile_job.target_of("H100"), whole=True)
print(*sorted(set(sys.modules) - known))
"""


def test_a_compilation_after_the_warm_up_imports_nothing(tmp_path: Path) -> None:
    """Triton 3.6 imports torch when it first specialises a launch, and not when it compiles a source."""
    script = tmp_path / "compilation.py"
    script.write_text(A_COMPILATION)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
