"""BM25 beside other packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_jax_is_not_woken_where_it_is_installed(tmp_path: Path) -> None:
    """At its first use JAX takes three quarters of a GPU's memory, which judge and policy need."""
    package = tmp_path / "jax"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "lax.py").write_text("raise AssertionError('it was used')\n")
    script = (
        "import kernel_core.retrieval.words, sys; assert 'jax' not in sys.modules\nimport jax; print(jax)"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert str(tmp_path) in done.stdout, done.stderr[-1000:]
