"""The flow of a stage: a run of a deployment keeps every setting of its preset that the caller left out.

Prefect replaces whole parameters: `-p config={"problems": {"limit": 2}}` drops all that the deployment says
of `config`. Here the caller's parameters are laid over the deployment's, setting by setting.

The form of the UI sends every field. A default that is sent along would count as set, and a model of another
kind would not get the settings of its kind. So a setting at its default is left out.
"""

from __future__ import annotations

import logging
import os
import typing
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.context import FlowRunContext
from prefect.task_runners import ThreadPoolTaskRunner

from kernel_core.config import Config
from kernel_core.config.base import laid_over
from kernel_core.errors import CallerError
from kernel_core.runs.configure import build, without_defaults
from tasks.batches import AT_ONCE

ROOT = "runs"
"""Default of every flow's root: on a worker it means the worker's `DOJO_ROOT`, where that is set."""


class StageFlow(Flow[..., None]):
    """A Prefect flow that merges its run's parameters with its deployment's."""

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Parameters as typed values. A subflow and a flow without a worker have only their own."""
        started_for = os.environ.get("PREFECT__FLOW_RUN_ID")
        if started_for is not None and FlowRunContext.get() is None:
            preset = _preset(started_for)
            chosen = {name: self._chosen(name, value, preset) for name, value in parameters.items()}
            parameters = _root_of_this_worker(self.name, laid_over(preset, chosen))
        return super().validate_parameters(parameters)

    def _chosen(self, name: str, given: Any, preset: Mapping[str, Any]) -> Any:
        """A parameter without the settings that are at their defaults."""
        kind = typing.get_type_hints(self.fn).get(name)
        if not (isinstance(kind, type) and issubclass(kind, Config) and isinstance(given, Mapping)):
            return given
        below = preset.get(name) or {}
        return without_defaults(given, below, build(kind, below), kind.model_construct())


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
    runner = ThreadPoolTaskRunner(max_workers=AT_ONCE)
    return lambda function: StageFlow(function, name=name, flow_run_name=run_name, task_runner=runner)


def _root_of_this_worker(stage: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters with the worker's `DOJO_ROOT` in place of a root that was left out."""
    root = os.environ.get("DOJO_ROOT")
    owner = parameters.get("config") if stage == "pipeline" else parameters
    if root is None or not isinstance(owner, dict) or owner.get("root", ROOT) != ROOT:
        return parameters
    return laid_over(parameters, {"config": {"root": root}} if stage == "pipeline" else {"root": root})


def _preset(started_for: str) -> dict[str, Any]:
    """Parameters of the deployment that a flow run is of."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        deployment = client.read_flow_run(UUID(started_for)).deployment_id
        return dict(client.read_deployment(deployment).parameters) if deployment is not None else {}
