"""A GPU is as fast as ever when the judge begins to time."""

from __future__ import annotations

import pytest
import torch

from kernel_core.gym.timing.idle_gpu import MemoryProbe


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_memory_that_was_given_back_is_waited_for() -> None:
    probe = MemoryProbe()
    for _ in range(10):
        probe.wait()
    torch.empty(8 << 30, dtype=torch.uint8, device="cuda").fill_(1)
    torch.cuda.empty_cache()
    probe.wait()
    assert probe.read_ms() < 1.15 * probe.calm_ms
