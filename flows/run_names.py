"""The run of a command that names none: after its preset, `learn`, then `learn-0002` and so on.

The same command goes on with the run that it began. Another command begins a run of its own, so that no one
has to think of a name to try a setting. A name that was typed is kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from flows.running import as_json
from kernel_core.config import PipelineConfig
from kernel_core.runs.naming import own_or_free
from kernel_core.runs.stage_record import canonical

FRESH = ("pipeline", "compare", "train", "evaluate", "best-of-n")
"""Stages that make a run of their own; the others add to one, or keep one name for ever."""


class Place(NamedTuple):
    """Where a run is."""

    root: str
    run: str


def place_of(stage: str, parameters: Mapping[str, Any]) -> Place:
    """Where a stage with these typed parameters works."""
    config = parameters["config"]
    if isinstance(config, PipelineConfig):
        return Place(config.root, config.run)
    return Place(parameters.get("root", "runs"), parameters.get("run", stage))


def names_a_run(stage: str, settings: Mapping[str, Any]) -> bool:
    """Whether nested settings have a run."""
    return "run" in (settings.get("config") or {} if stage == "pipeline" else settings)


def in_own_run(flow: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A flow's typed parameters with the run that this command began, or a new one."""
    if flow.name not in FRESH:
        return dict(parameters)
    place = place_of(flow.name, parameters)

    def is_own(command: Mapping[str, Any]) -> bool:
        return command["flow"] == flow.name and _told(flow, command["parameters"]) == _told(flow, parameters)

    name = own_or_free(place.root, place.run, is_own)
    if flow.name == "pipeline":
        return {**parameters, "config": parameters["config"].model_copy(update={"run": name})}
    return {**parameters, "run": name}


def _told(flow: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON, with defaults of those that were left out, without the name of the run."""
    signature = inspect.signature(flow.fn).parameters.values()
    defaults = {one.name: one.default for one in signature if one.default is not one.empty}
    told = canonical(as_json({**defaults, **parameters}))
    told["config"] = {key: value for key, value in told["config"].items() if key != "run"}
    return {key: value for key, value in told.items() if key != "run"}
