"""`prefect.yaml`, checked as Prefect does not: misspelt keys and unset variables are errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from flows.presets import STAGES, build_parameters, load_yaml, module_of
from kernel_core.config import Config, build
from kernel_core.errors import ConfigError


class WorkPool(Config):
    """Whose workers run it."""

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

    name: str = Field(pattern=r"^[a-z0-9-]+$")
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
        """The stage whose flow it runs."""
        for stage in STAGES:
            if self.entrypoint == f"flows/{module_of(stage)}.py:{module_of(stage)}":
                return stage
        known = ", ".join(f"flows/{module_of(stage)}.py:{module_of(stage)}" for stage in STAGES)
        raise ConfigError(f"{self.name}: no flow at entrypoint {self.entrypoint!r}; known: {known}")


class DeploymentFile(Config):
    """The whole of `prefect.yaml`."""

    name: str
    pull: tuple[dict[str, Any], ...]
    definitions: dict[str, Any] = Field(default_factory=dict)
    deployments: tuple[Deployment, ...] = Field(min_length=1)


def load_deployments(file: Path, environment: Mapping[str, str]) -> DeploymentFile:
    """Read and check the file: keys, entrypoints, each deployment's parameters, environment variables.

    Raises `ConfigError` naming the deployment and the key that is wrong.
    """
    content = load_yaml(file)
    if not isinstance(content, dict):
        raise ConfigError(f"{file} holds no deployments")
    checked = build(DeploymentFile, content)
    for variable in re.findall(r"\{\{\s*\$(\w+)\s*\}\}", file.read_text()):
        if variable not in environment:
            raise ConfigError(f"{file} uses ${variable}, which is not set in the environment")
    seen: set[str] = set()
    for deployment in checked.deployments:
        full_name = f"{deployment.stage}/{deployment.name}"
        if full_name in seen:
            raise ConfigError(f"{file} has {full_name} twice")
        seen.add(full_name)
        try:
            build_parameters(deployment.stage, deployment.parameters)
        except ConfigError as error:
            raise ConfigError(f"{file}, {full_name}: {error}") from error
    return checked


def routed_names(deployments: DeploymentFile) -> Iterator[str]:
    """`stage/name` of every deployment."""
    return (f"{deployment.stage}/{deployment.name}" for deployment in deployments.deployments)
