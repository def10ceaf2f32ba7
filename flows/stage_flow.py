"""Flow of a stage: a run of a deployment keeps every setting of its preset that the caller left out.

Prefect replaces whole parameters: `-p config={"problems": {"limit": 2}}` drops all that the deployment says
of `config`. Here the caller's parameters are merged into the deployment's, setting by setting.

The form of the UI sends every field. A default that is sent along would count as set, and a model of another
kind would not get the settings of its kind. So a setting at its default is left out.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import typing
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.context import FlowRunContext
from prefect.states import Failed, State
from prefect.task_runners import ThreadPoolTaskRunner

from flows.run_names import in_own_run
from kernel_core.config import Config
from kernel_core.config.base import laid_over, unfolded
from kernel_core.errors import CallerError
from kernel_core.runs.configure import build, without_defaults
from tasks.batches import AT_ONCE

ROOT = "runs"
"""Default root of every flow; a worker takes its `DOJO_ROOT` in place of it."""
REFUSED = "Refused"
"""State name of a flow run that failed by a mistake of its caller's, which another try would meet again."""


class StageFlow(Flow[..., None]):
    """A Prefect flow that merges its run's parameters with its deployment's. Its form begins with the run."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        given = inspect.signature(self.fn, eval_str=True).parameters.values()
        by_name = (parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in given)
        # Prefect makes the form of this. Only keyword parameters may begin with one that has a default.
        self.__signature__ = inspect.Signature(sorted(by_name, key=lambda parameter: parameter.name != "run"))
        self.fn = _refusing(self.fn)

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return parameters as typed values; on a worker, merged with those of the deployment."""
        started_for = os.environ.get("PREFECT__FLOW_RUN_ID")
        if started_for is None or FlowRunContext.get() is not None:
            return super().validate_parameters(parameters)
        preset, is_stage_of_another = _preset(started_for)
        chosen = {name: self._chosen(name, value, preset) for name, value in parameters.items()}
        given = _root_of_this_worker(self.name, laid_over(preset, chosen))
        typed = super().validate_parameters(given)
        kept = is_stage_of_another or _run_in(self.name, given) != _run_in(self.name, preset)
        return typed if kept else in_own_run(self, typed)

    def _chosen(self, name: str, given: Any, preset: Mapping[str, Any]) -> Any:
        """Return a parameter without the settings that are at their defaults."""
        kind = typing.get_type_hints(self.fn).get(name)
        if not (isinstance(kind, type) and issubclass(kind, Config) and isinstance(given, Mapping)):
            return given
        below = preset.get(name) or {}
        return without_defaults(unfolded(given), below, build(kind, below), kind.model_construct())


def _refusing(function: Callable[..., None]) -> Callable[..., State[Any] | None]:
    """Return the function with a state in place of a caller's mistake, whose message says what to do."""

    @functools.wraps(function)
    def call(*args: Any, **parameters: Any) -> State[Any] | None:
        try:
            return function(*args, **parameters)
        except CallerError as error:
            return Failed(name=REFUSED, message=str(error), data=error)

    call.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined]
    return call


def _in_one_line(record: logging.LogRecord) -> bool:
    """Take the traceback of a caller's mistake from the log of a task; every record passes."""
    if record.exc_info and isinstance(record.exc_info[1], CallerError):
        record.msg, record.args, record.exc_info = str(record.exc_info[1]), (), None
    return True


logging.getLogger("prefect.task_runs").addFilter(_in_one_line)


def stage_flow(name: str, run_name: str | Callable[[], str]) -> Callable[[Callable[..., None]], StageFlow]:
    """Return the decorator of a stage; `run_name` is a template of parameters or returns a name."""
    runner = ThreadPoolTaskRunner(max_workers=AT_ONCE)
    return lambda function: StageFlow(function, name=name, flow_run_name=run_name, task_runner=runner)


def _root_of_this_worker(stage: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with the worker's `DOJO_ROOT` in place of a root that was left out."""
    root = os.environ.get("DOJO_ROOT")
    owner = parameters.get("config") if stage == "pipeline" else parameters
    if root is None or not isinstance(owner, dict) or owner.get("root", ROOT) != ROOT:
        return parameters
    return laid_over(parameters, {"config": {"root": root}} if stage == "pipeline" else {"root": root})


def _run_in(stage: str, parameters: Mapping[str, Any]) -> Any:
    return (parameters.get("config") or {} if stage == "pipeline" else parameters).get("run")


def _preset(started_for: str) -> tuple[dict[str, Any], bool]:
    """Return the parameters of a flow run's deployment, and True if another flow started the run."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        flow_run = client.read_flow_run(UUID(started_for))
        there = client.read_deployment(flow_run.deployment_id) if flow_run.deployment_id is not None else None
        return dict(there.parameters) if there is not None else {}, flow_run.parent_task_run_id is not None
