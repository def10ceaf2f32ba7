"""A judge that tests of several modules share: starting one costs more than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernel_core.config import GymConfig
from kernel_core.gym import open_gym
from kernel_core.gym.protocol import Gym

QUICK = GymConfig(workers=1, trials=1, compile_gate=False)


@pytest.fixture(scope="session")
def quick_gym() -> Iterator[Gym]:
    """One judge that tries a candidate once and compiles nothing for a GPU."""
    with open_gym(QUICK) as opened:
        yield opened
