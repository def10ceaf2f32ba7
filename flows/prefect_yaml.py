"""Prefect's own models of `prefect.yaml`, and what a deployment of ours may not say.

They are private to Prefect, so no other module imports them; `pyproject.toml` bounds the releases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prefect.cli.deploy import _models
from prefect.cli.deploy._schedules import _schedule_config_to_deployment_schedule
from prefect.events import DeploymentTriggerTypes
from pydantic import Field, TypeAdapter, field_validator

Limit, Schedule = _models.ConcurrencyLimitSpec, _models.RawScheduleConfig
_FIELDS = _models.PrefectYamlModel.model_fields
FILE_KEYS = {field.alias or name for name, field in _FIELDS.items()} | {"definitions"}
_TRIGGERS: TypeAdapter[Any] = TypeAdapter(list[DeploymentTriggerTypes])


def as_created(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schedule of the file as the API takes it.

    Raises pydantic's `ValidationError` for unknown keys and for times that never come.
    """
    Schedule.model_validate(schedule)
    return _schedule_config_to_deployment_schedule(dict(schedule))


class Entry(_models.DeploymentConfig):
    """Deployment of the file. Schedules are read one by one, so that a fault is told of one."""

    name: str = Field(min_length=1)
    entrypoint: str

    @field_validator("parameters", "work_pool", mode="before")
    @classmethod
    def _names_no_block(cls, value: Any) -> Any:
        if "prefect.blocks." in json.dumps(value, default=str):
            raise ValueError(
                "Prefect would store the value of a block here, readable for all; name the block in the "
                "template of the work pool (deploy/README.md, Storage and keys from the server)"
            )
        return value

    @field_validator("triggers")
    @classmethod
    def _are_triggers(cls, triggers: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        _TRIGGERS.validate_python(triggers or [])
        return triggers


Entry.model_rebuild(_types_namespace=vars(_models))
