"""The flow of a stage: a run of a deployment keeps every setting of its preset that the caller left out.

Prefect replaces whole parameters: `-p config={"problems": {"limit": 2}}` drops all that the deployment says
of `config`. Here the caller's parameters are laid over the deployment's, setting by setting.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.context import FlowRunContext

from kernel_core.config.base import laid_over
from kernel_core.errors import CallerError


class StageFlow(Flow[..., None]):
    """A Prefect flow that merges its run's parameters with its deployment's."""

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Parameters as typed values. A subflow and a flow without a deployment have only their own."""
        return super().validate_parameters(laid_over(_preset_of_this_process(), parameters))


class MistakesInOneLine(logging.Filter):
    """Takes the traceback from the log of a caller's mistake: its message says what to do."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass."""
        if record.exc_info and isinstance(record.exc_info[1], CallerError):
            record.msg, record.args, record.exc_info = str(record.exc_info[1]), (), None
        return True


for _logger in ("prefect.flow_runs", "prefect.task_runs"):
    logging.getLogger(_logger).addFilter(MistakesInOneLine())


def stage_flow(name: str, run_name: str) -> Callable[[Callable[..., None]], StageFlow]:
    """Decorator that makes a stage of a function; `run_name` is a template of its parameters."""
    return lambda function: StageFlow(function, name=name, flow_run_name=run_name)


def _preset_of_this_process() -> dict[str, Any]:
    """Parameters of the deployment that a worker started this process for; empty for a subflow."""
    started_for = os.environ.get("PREFECT__FLOW_RUN_ID")
    if started_for is None or FlowRunContext.get() is not None:
        return {}
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        deployment = client.read_flow_run(UUID(started_for)).deployment_id
        return dict(client.read_deployment(deployment).parameters) if deployment is not None else {}
