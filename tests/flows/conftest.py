"""One Prefect server for all flow tests: the one that `dojo` starts, with a database of its own."""

import pytest

from flows.server import own_server, prepare_environment


@pytest.fixture(scope="session")
def prefect_api(tmp_path_factory):
    """A Prefect API that flows of this process use; its URL."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(tmp_path_factory.mktemp("prefect")))
        prepare_environment()
        from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

        # As `dojo` does: heartbeats round every flow up to whole seconds.
        with own_server() as url:
            updates = {PREFECT_API_URL: url, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
            with temporary_settings(updates=updates):
                yield url
