"""Presets, which are the deployments of `prefect.yaml`, and the layers of settings, of which the last wins:

    preset  <  --config FILE.yaml  <  environment  <  key.sub=value

Environment variables are `DOJO_` and the path in capitals, `__` between its parts, the stage first:
`DOJO_TRAIN__GROUP_SIZE=16` is `group_size=16` of `dojo train` and `train.group_size=16` of `dojo pipeline`.
`DOJO_ROOT` and `DOJO_RUN` name the root and the run of any stage.
"""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

import kernel_core.config
from kernel_core.config import Config
from kernel_core.config.base import laid_over
from kernel_core.config.yaml_lines import load_yaml
from kernel_core.errors import ConfigError, NotFound
from kernel_core.runs.configure import build, override

STAGES = (
    "pipeline",
    "compare",
    "ingest",
    "verify",
    "index",
    "cold-start",
    "train",
    "evaluate",
    "best-of-n",
    "promote",
    "nightly",
)
"""Names of the flows; the module of each is the name with underscores."""

PREFECT_YAML = Path(__file__).resolve().parents[1] / "prefect.yaml"


def config_class_of(stage: str) -> type[Config]:
    """Return the class of a stage's settings, without an import of its flow."""
    others = {"cold-start": "Train", "best-of-n": "BestOfN", "nightly": "Evaluate", "promote": "Evaluate"}
    name = others.get(stage, stage.capitalize())
    return typing.cast(type[Config], getattr(kernel_core.config, f"{name}Config"))


def module_of(stage: str) -> str:
    """Return the name of the flow's module and function."""
    return stage.replace("-", "_")


def entrypoint_of(stage: str) -> str:
    """Return Prefect's entrypoint of the flow of a stage."""
    return f"flows/{module_of(stage)}.py:{module_of(stage)}"


def stage_of(entrypoint: str) -> str:
    """Return the stage of an entrypoint."""
    known = {entrypoint_of(stage): stage for stage in STAGES}
    if entrypoint not in known:
        raise ConfigError(f"no flow at entrypoint {entrypoint!r}; known: {', '.join(known)}", "entrypoint")
    return known[entrypoint]


def presets(stage: str, file: Path = PREFECT_YAML) -> dict[str, dict[str, Any]]:
    """Return the parameters of each deployment of a stage, in the file's order; the first is the default."""
    entrypoint = entrypoint_of(stage)
    return {
        deployment["name"]: deployment.get("parameters") or {}
        for deployment in load_yaml(file)["deployments"]
        if deployment["entrypoint"] == entrypoint
    }


def preset(stage: str, name: str | None) -> dict[str, Any]:
    """Return the parameters of a preset; without a name, of the stage's first one."""
    known = presets(stage)
    if name is None:
        return next(iter(known.values()), {})
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise NotFound(f"no preset {name!r} of {stage}; {hint}")
    return known[name]


def preset_and_settings(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Split words of a command line into at most one preset, and the assignments."""
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        raise ConfigError(
            f"one preset was wanted, but {len(names)} came: {' '.join(names)}; settings are key=value"
        )
    return next(iter(names), None), [word for word in words if "=" in word]


def settings_for(
    stage: str,
    preset_name: str | None,
    file: Path | None,
    assignments: list[str],
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Return all layers of a stage's settings, merged into flow parameters."""
    return laid_over(preset(stage, preset_name), chosen_settings(stage, file, assignments, environment))


def chosen_settings(
    stage: str, file: Path | None, assignments: list[str], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the layers above the preset, which a person chose, merged into flow parameters."""
    own = flow_hints(stage).keys() - {"config"}  # `run=x` is such a parameter, `steps=4` is of the config
    if stage in ("pipeline", "compare"):  # its policy is the one that it trains
        assignments = [f"train.{word}" if word.startswith("policy.") else word for word in assignments]
    content = {} if file is None else load_yaml(file)
    if not isinstance(content, dict):
        raise ConfigError(f"{file} holds {type(content).__name__}, but settings by name were wanted")
    merged: dict[str, Any] = {}
    for layer in (content, override({}, _from_environment(stage, environment)), override({}, assignments)):
        config = {key: value for key, value in layer.items() if key not in own}
        beside = {key: value for key, value in layer.items() if key in own}
        merged = laid_over(merged, {"config": config, **beside} if config else beside)
    return merged


def build_parameters(stage: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flow's parameters as typed values; raise `ConfigError` for unknown names and bad values."""
    hints = flow_hints(stage)
    built: dict[str, Any] = {}
    for name, value in settings.items():
        hint = hints.get(name)
        if hint is None:
            near = difflib.get_close_matches(name, hints, n=1)
            raise ConfigError(
                f"unknown parameter {name} of {stage}; did you mean {(near or list(hints))[0]}?", name
            )
        if isinstance(hint, type) and issubclass(hint, Config):
            try:
                built[name] = build(hint, dict(value or {}))
            except ConfigError as error:
                raise ConfigError(str(error), f"{name}.{error.key}") from error
            continue
        if value is None and name in ("run", "root"):
            raise ConfigError(f"{name}= has no value: write {name}=NAME or leave it out", name)
        try:
            built[name] = TypeAdapter(hint).validate_python(value)
        except ValidationError as error:
            raise ConfigError(f"{name} = {value!r}: {error.errors()[0]['msg'].lower()}", name) from error
    for name, hint in hints.items():
        if name not in built and isinstance(hint, type) and issubclass(hint, Config):
            built[name] = hint()
    return built


def load_flow(stage: str) -> Any:
    """Import the flow of a stage, and with it Prefect."""
    import importlib

    name = module_of(stage)
    return getattr(importlib.import_module(f"{__package__}.{name}"), name)


def flow_hints(stage: str) -> dict[str, Any]:
    """Return the type of each parameter of a stage's flow."""
    function = load_flow(stage).fn
    hints = typing.get_type_hints(function)
    return {name: hints[name] for name in inspect.signature(function).parameters}


def _from_environment(stage: str, environment: Mapping[str, str]) -> list[str]:
    """Return the assignments that the environment makes for a stage; a cold start is set like a training."""
    own = "train" if stage == "cold-start" else module_of(stage)
    assignments = []
    for variable in sorted(name for name in environment if name.startswith("DOJO_")):
        owner, _, path = variable.removeprefix("DOJO_").lower().partition("__")
        path, value = path.replace("__", "."), environment[variable]
        if owner in ("root", "run") and not path:
            assignments.append(f"{owner}={value}")
        elif path and owner == own:
            assignments.append(f"{path}={value}")
        elif path and stage == "pipeline" and owner in map(module_of, STAGES):
            assignments.append(f"{owner}.{path}={value}")
    return assignments
