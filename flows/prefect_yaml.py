"""The keys that `prefect.yaml` has for a deployment, with Prefect's public types for schedules and triggers.

Prefect's own models of that file are private. A test holds these to their keys.
"""

from __future__ import annotations

import datetime
import json
from typing import Any, Literal

from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.events import DeploymentTriggerTypes
from pydantic import BaseModel, Field, TypeAdapter, field_validator, model_validator

FILE_KEYS = {"prefect-version", "name", "build", "push", "pull", "deployments", "definitions"}
Steps = list[dict[str, Any]] | dict[str, Any] | None
_TRIGGERS: TypeAdapter[Any] = TypeAdapter(list[DeploymentTriggerTypes])


class Pool(BaseModel):
    """Where runs go."""

    name: str | None = None
    work_queue_name: str | None = None
    job_variables: dict[str, Any] = Field(default_factory=dict)


class Limit(BaseModel):
    """Runs at once, and what becomes of one more."""

    limit: int | None = None
    collision_strategy: str | None = None
    grace_period_seconds: int | None = None


class Schedule(BaseModel):
    """When runs begin: by one of `cron`, `interval` and `rrule`."""

    cron: str | None = None
    interval: datetime.timedelta | None = None
    rrule: str | None = None
    timezone: str | None = None
    anchor_date: datetime.datetime | None = None
    day_or: bool | None = None
    active: bool | Literal["{{ every_night_is_on }}"] | None = None
    """On or off, or what the build step found on the server (`deploy_steps`)."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    slug: str | None = None
    replaces: str | None = None

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Schedule:
        if sum(kind is not None for kind in (self.cron, self.interval, self.rrule)) != 1:
            raise ValueError("Exactly one of 'cron', 'interval', or 'rrule' must be provided")
        return self

    def as_created(self) -> dict[str, Any]:
        """The schedule as the API takes it. Raises pydantic's `ValidationError` for times that never come."""
        given = self.model_dump(exclude_none=True)
        timing = {"timezone": self.timezone} if self.timezone else {}
        made: CronSchedule | IntervalSchedule | RRuleSchedule
        if self.cron is not None:
            made = CronSchedule(cron=self.cron, **{k: given[k] for k in ("day_or",) if k in given}, **timing)
        elif self.interval is not None:
            anchor = {k: given[k] for k in ("anchor_date",) if k in given}
            made = IntervalSchedule(interval=self.interval, **anchor, **timing)
        else:
            rule = self.rrule or ""
            made = RRuleSchedule(**((json.loads(rule) if rule.startswith("{") else {"rrule": rule}) | timing))
        about = ("active", "parameters", "slug", "replaces")
        return {"schedule": made, **{key: given[key] for key in about if given.get(key) not in (None, {})}}


class Entry(BaseModel):
    """One deployment of the file. Schedules are read one by one, so that a fault is told of one."""

    name: str = Field(min_length=1)
    version: str | None = None
    version_type: str | None = None
    tags: str | list[Any] | None = None
    description: str | None = None
    paused: bool | None = None
    concurrency_limit: int | Limit | None = None
    flow_name: str | None = None
    entrypoint: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    enforce_parameter_schema: bool | None = None
    build: Steps = None
    push: Steps = None
    pull: Steps = None
    work_pool: Pool | None = None
    triggers: list[dict[str, Any]] | None = None

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

    @field_validator("build", "push", "pull")
    @classmethod
    def _as_list(cls, steps: Steps) -> list[dict[str, Any]] | None:
        return [steps] if isinstance(steps, dict) and steps else steps or None
