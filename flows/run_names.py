"""Typed parameters of a flow, and the run of a command that names none.

Such a run is named after its preset, `learn`, then `learn-0002` and so on. The same command goes on with the
run that it began. Another command begins a run of its own. A name that was typed is kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from kernel_core.config import Config, PipelineConfig
from kernel_core.runs.naming import own_or_free
from kernel_core.runs.stage_record import canonical

FRESH = ("pipeline", "compare", "train", "evaluate", "best-of-n")
"""Stages that make a run of their own; the others add to one, or keep one name for ever."""


class Place(NamedTuple):
    """Root and name of a run."""

    root: str
    run: str


def place_of(stage: str, parameters: Mapping[str, Any]) -> Place:
    """Return the run that a stage with these typed parameters works in."""
    config = parameters["config"]
    if isinstance(config, PipelineConfig):
        return Place(config.root, config.run)
    return Place(parameters.get("root", "runs"), parameters.get("run", stage))


def as_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return typed parameters as a deployment and `config.json` have them."""
    return {
        name: value.model_dump(mode="json") if isinstance(value, Config) else value
        for name, value in parameters.items()
    }


def names_a_run(stage: str, settings: Mapping[str, Any]) -> bool:
    """Return True if nested settings name a run."""
    return "run" in (settings.get("config") or {} if stage == "pipeline" else settings)


def in_own_run(flow: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flow's typed parameters with the run that this command began, or a new one."""
    if flow.name not in FRESH:
        return dict(parameters)
    place, wanted = place_of(flow.name, parameters), _without_run(flow, parameters)

    def is_own(command: Mapping[str, Any]) -> bool:
        return command["flow"] == flow.name and _without_run(flow, command["parameters"]) == wanted

    name = own_or_free(place.root, place.run, is_own)
    if flow.name == "pipeline":
        return {**parameters, "config": parameters["config"].model_copy(update={"run": name})}
    return {**parameters, "run": name}


def _without_run(flow: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as JSON, defaults filled in, without the name of the run."""
    signature = inspect.signature(flow.fn).parameters.values()
    defaults = {given.name: given.default for given in signature if given.default is not given.empty}
    command = canonical(as_json({**defaults, **parameters}))
    command["config"].pop("run", None)
    command.pop("run", None)
    return command
