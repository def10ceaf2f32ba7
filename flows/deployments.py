"""`prefect.yaml`, checked as Prefect does not: a wrong key or an unset variable is an error with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from flows.presets import build_parameters, load_yaml, stage_of
from flows.yaml_lines import line_of
from kernel_core.config import Config
from kernel_core.errors import ConfigError
from kernel_core.runs.configure import build


class WorkPool(Config):
    """The work pool of a deployment."""

    name: Literal["cpu", "cuda"]
    job_variables: dict[str, Any] = Field(default_factory=dict)


class ConcurrencyLimit(Config):
    """How many at once, and what becomes of one more."""

    limit: int = Field(ge=1)
    collision_strategy: Literal["ENQUEUE", "CANCEL_NEW"] = "ENQUEUE"


class Schedule(Config):
    """When it starts by itself."""

    cron: str
    timezone: str
    slug: str
    active: bool


class Deployment(Config):
    """One preset."""

    name: str = Field(pattern=r"^[a-z0-9_-]+$")
    entrypoint: str
    description: str
    tags: tuple[str, ...]
    work_pool: WorkPool
    parameters: dict[str, Any]
    concurrency_limit: ConcurrencyLimit | None = None
    schedules: tuple[Schedule, ...] = ()
    paused: bool = False

    @property
    def stage(self) -> str:
        """The stage that it runs."""
        return stage_of(self.entrypoint)


class DeploymentFile(Config):
    """The whole of `prefect.yaml`."""

    name: str
    pull: tuple[dict[str, Any], ...]
    definitions: dict[str, Any] = Field(default_factory=dict)
    deployments: tuple[Deployment, ...] = Field(min_length=1)


def load_deployments(file: Path, environment: Mapping[str, str]) -> DeploymentFile:
    """Read and check the file: keys, entrypoints, each deployment's parameters, environment variables.

    Raises `ConfigError` naming the line, the deployment and the key that is wrong.
    """
    content = load_yaml(file)
    if not isinstance(content, dict):
        raise ConfigError(f"{file} holds no deployments")
    _require_variables(file, environment)
    entries = content.get("deployments")
    named: dict[str, int] = {}
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        name = _check_entry(file, number, entry)
        if name in named:
            line = line_of(file, ("deployments", number, "name"))
            raise ConfigError(f"{file}, line {line}: {name} is there twice")
        named[name] = number
    try:
        return build(DeploymentFile, content)
    except ConfigError as error:
        raise _at(file, error, tuple(error.key.split(".")), "") from error


def routed_names(deployments: DeploymentFile) -> Iterator[str]:
    """`stage/name` of every deployment."""
    return (f"{deployment.stage}/{deployment.name}" for deployment in deployments.deployments)


def _check_entry(file: Path, number: int, entry: Any) -> str:
    """Check one deployment by itself, so that the error knows where it stands; gives `stage/name`."""
    if not isinstance(entry, dict):
        raise ConfigError(f"{file}: deployment {number + 1} is not a mapping of settings")
    here, name = ("deployments", number), str(entry.get("name", f"deployment {number + 1}"))
    try:
        deployment = build(Deployment, entry)
        stage = deployment.stage
    except ConfigError as error:
        raise _at(file, error, (*here, *error.key.split(".")), f"{name}: ") from error
    try:
        build_parameters(stage, deployment.parameters)
    except ConfigError as error:
        raise _at(file, error, (*here, "parameters", *error.key.split(".")), f"{stage}/{name}: ") from error
    return f"{stage}/{name}"


def _at(file: Path, error: ConfigError, path: tuple[str | int, ...], who: str) -> ConfigError:
    line = line_of(file, path)
    where = f"{file}, line {line}" if line is not None else str(file)
    return ConfigError(f"{where}: {who}{error}", error.key)


def _require_variables(file: Path, environment: Mapping[str, str]) -> None:
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        for variable in re.findall(r"\{\{\s*\$(\w+)\s*\}\}", line):
            if variable not in environment:
                raise ConfigError(
                    f"{file}, line {number} uses ${variable}, which is not set in the environment"
                )
