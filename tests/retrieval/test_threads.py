"""faiss and torch share an OpenMP runtime: what one sets, the other would compute with."""

from __future__ import annotations

import subprocess
import sys

import pytest

SEARCH_THEN_COUNT = """
import torch, faiss
torch.get_num_threads()  # torch takes its number when it is first asked
faiss.omp_set_num_threads(4)
from kernel_core.retrieval.vectors import one_thread
with one_thread():
    inside = faiss.omp_get_max_threads()
print(inside, faiss.omp_get_max_threads(), torch.get_num_threads())
"""


@pytest.mark.exhaustive
def test_searching_on_one_thread_leaves_the_others_to_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SEARCH_THEN_COUNT], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "4", "4"]
