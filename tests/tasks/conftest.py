"""The Prefect server of the flow tests, for the tasks too."""

from tests.flows.conftest import prefect_api

__all__ = ["prefect_api"]
