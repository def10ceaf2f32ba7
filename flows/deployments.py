"""`prefect.yaml`, checked before it is sent: with Prefect's own types, and for what Prefect lets pass.

Prefect ignores an unknown key, stores the name of an unset variable as it stands, and finds a wrong schedule
only after it has begun to deploy. Here each is an error with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from flows.prefect_yaml import FILE_KEYS, Entry, Limit, Schedule, as_created
from flows.presets import build_parameters, stage_of
from kernel_core.config.base import laid_over
from kernel_core.config.yaml_lines import line_of, load_yaml
from kernel_core.errors import ConfigError
from kernel_core.runs.configure import refuse_unknown

KeyPath = tuple[str | int, ...]
_VARIABLE = re.compile(r"\{\{\s*\$(\w+)\s*\}\}")


class Deployment(NamedTuple):
    """One preset: its entry as Prefect reads it, and what is made of it."""

    stage: str
    entry: Entry
    schedules: tuple[dict[str, Any], ...]
    """What each schedule becomes, as Prefect makes it."""
    pull: list[dict[str, Any]] | None
    """Its own pull steps, or else those of the file."""

    @property
    def name(self) -> str:
        """As `prefect deployment run` has it: stage and preset."""
        return f"{self.stage}/{self.entry.name}"

    @property
    def pool(self) -> str | None:
        """The work pool; None for Prefect's default one."""
        return self.entry.work_pool.name if self.entry.work_pool is not None else None

    @property
    def limit(self) -> tuple[int | None, str | None]:
        """Runs at once, and what becomes of one more."""
        spec = self.entry.concurrency_limit
        if isinstance(spec, Limit):
            return spec.limit, spec.collision_strategy
        return spec, None


def load_deployments(file: Path, environment: Mapping[str, str]) -> list[Deployment]:
    """Every deployment of the file: keys, entrypoints, parameters, schedules, triggers and variables checked.

    Raises `ConfigError` naming the line, the deployment and the key that is wrong.
    """
    content = load_yaml(file)
    if not isinstance(content, dict) or not content.get("deployments"):
        raise ConfigError(f"{file} holds no deployments")
    content = _with_variables(file, environment, content)
    for key in content.keys() - FILE_KEYS:
        raise _at(file, (key,), f"unknown key {key}")
    found: dict[str, Deployment] = {}
    for number, entry in enumerate(content["deployments"]):
        deployment = _checked(file, number, entry, content.get("pull"))
        if deployment.name in found:
            raise _at(file, ("deployments", number, "name"), f"{deployment.name} is there twice")
        found[deployment.name] = deployment
    return list(found.values())


def _checked(file: Path, number: int, entry: Any, pull: Any) -> Deployment:
    here: KeyPath = ("deployments", number)
    if not isinstance(entry, dict):
        raise _at(file, here, f"deployment {number + 1} is not a mapping of settings")
    name = str(entry.get("name", f"deployment {number + 1}"))
    try:
        # A schedule is of one of several kinds: each has a check of its own, which names one fault.
        plain = {key: value for key, value in entry.items() if key not in ("schedules", "schedule", "sla")}
        refuse_unknown(Entry, plain, "")
        stage = stage_of(str(entry.get("entrypoint")))
        checked = Entry.model_validate(plain)
        _check_parameters("parameters", stage, checked.parameters)
        schedules = tuple(_schedules(stage, checked.parameters, entry.get("schedules") or ()))
    except ConfigError as error:
        raise _at(file, (*here, *_parts(error.key)), f"{name}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise _at(file, (*here, *first["loc"]), f"{name}: {key}: {first['msg']}") from error
    return Deployment(stage, checked, schedules, checked.pull if "pull" in entry else pull)


def _schedules(stage: str, parameters: dict[str, Any], entries: Any) -> Iterator[dict[str, Any]]:
    for number, entry in enumerate(entries):
        refuse_unknown(Schedule, entry, f"schedules.{number}.")
        try:
            made = as_created(entry)
        except (ValidationError, ValueError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": error}
            key = ".".join(map(str, ("schedules", number, *first["loc"])))
            raise ConfigError(f"{key}: {first['msg']}", key) from error
        _check_parameters(
            f"schedules.{number}.parameters", stage, laid_over(parameters, entry.get("parameters") or {})
        )
        yield made


def _check_parameters(where: str, stage: str, parameters: Mapping[str, Any]) -> None:
    """Check a flow's parameters; the error's key says where in the deployment they stand."""
    try:
        build_parameters(stage, parameters)
    except ConfigError as error:
        raise ConfigError(str(error), f"{where}.{error.key}") from error


def _with_variables(file: Path, environment: Mapping[str, str], content: dict[str, Any]) -> dict[str, Any]:
    """The content with every `{{ $NAME }}` replaced."""
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        for variable in _VARIABLE.findall(line):
            if variable not in environment:
                raise ConfigError(
                    f"{file}, line {number} uses ${variable}, which is not set in the environment"
                )

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            return _VARIABLE.sub(lambda found: environment[found[1]], value)
        if isinstance(value, dict):
            return {key: replaced(one) for key, one in value.items()}
        return [replaced(one) for one in value] if isinstance(value, list) else value

    return {key: replaced(value) for key, value in content.items()}


def _parts(key: str) -> KeyPath:
    return tuple(int(part) if part.isdigit() else part for part in key.split("."))


def _at(file: Path, path: KeyPath, message: str) -> ConfigError:
    line = line_of(file, path)
    where = f"{file}, line {line}" if line is not None else str(file)
    return ConfigError(f"{where}: {message}")
