"""One Prefect server for all flow tests."""

import pytest

from flows.server import prepare_environment


@pytest.fixture(scope="session")
def prefect_api():
    """A temporary Prefect API; its URL."""
    prepare_environment()
    from prefect.settings import PREFECT_API_URL
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield PREFECT_API_URL.value()
