"""What all tests share: a judge, because starting one costs more than most tests, and compiled modules."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from kernel_core.config import GymConfig
from kernel_core.gym import open_gym
from kernel_core.gym.protocol import Gym

QUICK = GymConfig(workers=1, trials=1, compile_gate=False)


def pytest_configure(config: pytest.Config) -> None:
    """Where the environment forbids bytecode, each of the many processes that tests start would compile all
    that it imports: they keep it in a folder that goes with the tests."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = tempfile.TemporaryDirectory(prefix="bytecode-")
        os.environ["PYTHONPYCACHEPREFIX"] = folder.name
        config.add_cleanup(folder.cleanup)


@pytest.fixture(scope="session")
def quick_gym() -> Iterator[Gym]:
    """One judge that tries a candidate once and compiles nothing for a GPU."""
    with open_gym(QUICK) as opened:
        yield opened
