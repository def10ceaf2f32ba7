"""A judge service in this process, on a free port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from http_server import served

from kernel_core.config import EnvironmentConfig
from kernel_core.dialogue.environment import open_source
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.problems.load import load_folder
from kernel_core.serve.app import create_app
from kernel_core.serve.dispatcher import Dispatcher
from kernel_core.serve.keys import Keys

KEYS = {"ada": "key-of-ada-0123456789", "bea": "key-of-bea-0123456789"}
PROBLEMS = "tests/exploits/problems"


def serving(
    gym: PooledGym, capacity: int = 16, share: int = 16, only_known: bool = False
) -> AbstractContextManager[str]:
    """The URL of a service on a gym."""
    config = EnvironmentConfig.model_validate({"rollout": {"turns": 2}, "rewards": "dojo/correct"})
    source = open_source(config, load_folder(PROBLEMS))
    app = create_app(Dispatcher(gym, capacity, share), Keys(KEYS), source, only_known=only_known)
    return served(app)


@pytest.fixture(scope="session")
def gym(quick_gym: PooledGym) -> PooledGym:
    return quick_gym


@pytest.fixture(scope="session")
def url(gym: PooledGym) -> Iterator[str]:
    """A service with room enough."""
    with serving(gym) as found:
        yield found


@pytest.fixture(scope="session")
def serve() -> Callable[..., AbstractContextManager[str]]:
    """Start a service of one's own."""
    return serving
