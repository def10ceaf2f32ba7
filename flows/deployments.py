"""Check `prefect.yaml` before it is sent: with Prefect's own types, and for what Prefect lets pass.

Prefect ignores an unknown key, stores the name of an unset variable as it stands, and meets a wrong schedule
only after it has begun to deploy. Here each is an error with its line.

The models of the file are private to Prefect, so no other module imports them; `pyproject.toml` bounds the
releases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prefect.cli.deploy import _models
from prefect.cli.deploy._schedules import _schedule_config_to_deployment_schedule
from prefect.events import DeploymentTriggerTypes
from pydantic import Field, TypeAdapter, ValidationError, field_validator

from flows.presets import build_parameters, stage_of
from kernel_core.config.base import laid_over
from kernel_core.config.yaml_lines import fault_at, load_yaml
from kernel_core.errors import ConfigError
from kernel_core.runs.configure import refuse_unknown

_VARIABLE = re.compile(r"\{\{\s*\$(\w+)\s*\}\}")
_FIELDS = _models.PrefectYamlModel.model_fields
_FILE_KEYS = {field.alias or name for name, field in _FIELDS.items()} | {"definitions"}
_TRIGGERS: TypeAdapter[Any] = TypeAdapter(list[DeploymentTriggerTypes])


class Entry(_models.DeploymentConfig):
    """Deployment of the file, without its schedules, which are checked one by one."""

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


class Deployment(NamedTuple):
    """A preset: its stage, and its entry as Prefect reads it."""

    stage: str
    entry: Entry

    @property
    def name(self) -> str:
        """Return stage and preset, as `prefect deployment run` takes them."""
        return f"{self.stage}/{self.entry.name}"

    @property
    def pool(self) -> str | None:
        """Return the work pool; None for Prefect's default one."""
        return self.entry.work_pool.name if self.entry.work_pool is not None else None


def load_deployments(file: Path, environment: Mapping[str, str]) -> list[Deployment]:
    """Return the deployments of the file, with keys, parameters, schedules, triggers and variables checked.

    Raises `ConfigError` naming the line, the deployment and the key that is wrong.
    """
    content = load_yaml(file)
    if not isinstance(content, dict) or not content.get("deployments"):
        raise ConfigError(f"{file} holds no deployments")
    _check_variables(file, environment)
    content = _with_variables(content, environment)
    for key in content.keys() - _FILE_KEYS:
        raise fault_at(file, (key,), f"unknown key {key}")
    deployments: dict[str, Deployment] = {}
    for number, entry in enumerate(content["deployments"]):
        deployment = _checked(file, number, entry)
        if deployment.name in deployments:
            raise fault_at(file, ("deployments", number, "name"), f"{deployment.name} is there twice")
        deployments[deployment.name] = deployment
    return list(deployments.values())


def _checked(file: Path, number: int, entry: Any) -> Deployment:
    here = ("deployments", number)
    if not isinstance(entry, dict):
        raise fault_at(file, here, f"deployment {number + 1} is not a mapping of settings")
    name = str(entry.get("name", f"deployment {number + 1}"))
    try:
        plain = {key: value for key, value in entry.items() if key not in ("schedules", "schedule", "sla")}
        refuse_unknown(Entry, plain, "")
        stage = stage_of(str(entry.get("entrypoint")))
        checked = Entry.model_validate(plain)
        _check_parameters("parameters", stage, checked.parameters)
        for position, schedule in enumerate(entry.get("schedules") or ()):
            _check_schedule(f"schedules.{position}", schedule, stage, checked.parameters)
    except ConfigError as error:
        parts = (int(part) if part.isdigit() else part for part in error.key.split("."))
        raise fault_at(file, (*here, *parts), f"{name}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise fault_at(file, (*here, *first["loc"]), f"{name}: {key}: {first['msg']}") from error
    return Deployment(stage, checked)


def _check_schedule(where: str, schedule: Any, stage: str, parameters: dict[str, Any]) -> None:
    """Raise `ConfigError` for unknown keys, times that never come, and parameters that the flow lacks."""
    refuse_unknown(_models.RawScheduleConfig, schedule, f"{where}.")
    try:
        _models.RawScheduleConfig.model_validate(schedule)
        _schedule_config_to_deployment_schedule(dict(schedule))
    except ValueError as error:  # pydantic's are of this class
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": error}
        key = ".".join(map(str, (where, *first["loc"])))
        raise ConfigError(f"{key}: {first['msg']}", key) from error
    _check_parameters(f"{where}.parameters", stage, laid_over(parameters, schedule.get("parameters") or {}))


def _check_parameters(where: str, stage: str, parameters: Mapping[str, Any]) -> None:
    """Check a flow's parameters; the error's key says where in the deployment they stand."""
    try:
        build_parameters(stage, parameters)
    except ConfigError as error:
        raise ConfigError(str(error), f"{where}.{error.key}") from error


def _check_variables(file: Path, environment: Mapping[str, str]) -> None:
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        for name in _VARIABLE.findall(line):
            if name not in environment:
                raise ConfigError(f"{file}, line {number} uses ${name}, which is not set in the environment")


def _with_variables(value: Any, environment: Mapping[str, str]) -> Any:
    """Return a value of the file with every `{{ $NAME }}` replaced, at any depth."""
    if isinstance(value, dict):
        return {key: _with_variables(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_variables(item, environment) for item in value]
    return _VARIABLE.sub(lambda match: environment[match[1]], value) if isinstance(value, str) else value
