"""A config made of nested values and assignments; unknown keys are refused with the nearest known name."""

from __future__ import annotations

import difflib
import types
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from kernel_core.config import Config
from kernel_core.errors import ConfigError

ConfigT = TypeVar("ConfigT", bound=Config)


def build(config_class: type[ConfigT], values: dict[str, Any]) -> ConfigT:
    """A config from nested values; an unknown key or a bad value is one clear `ConfigError`."""
    refuse_unknown(config_class, values, prefix="")
    try:
        return config_class.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{key} = {first['input']!r}: {first['msg'].lower()}", key) from error


def override(values: dict[str, Any], assignments: list[str]) -> dict[str, Any]:
    """`values` with `key.sub=value` assignments laid over them; each value is read as YAML."""
    import yaml

    result = _copied(values)
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator or not key:
            raise ConfigError(f"{assignment!r} is not of the form key.sub=value")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"the value of {key} is not YAML: {text!r}") from error
        here = result
        *parents, leaf = key.split(".")
        for parent in parents:
            here = here.setdefault(parent, {})
            if not isinstance(here, dict):
                raise ConfigError(f"{key}: {parent} is a value, not a group of settings")
        here[leaf] = value
    return result


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, dict) else value for key, value in values.items()}


def refuse_unknown(config_class: type[BaseModel], values: Any, prefix: str) -> None:
    """Raise `ConfigError` for a key that no field has, at any depth; the message names the nearest one."""
    if not isinstance(values, dict):
        return
    known = config_class.model_fields
    for key, value in values.items():
        if key not in known:
            every = {name: f"{prefix}{name}" for name in known}
            near = difflib.get_close_matches(key, list(every), n=1, cutoff=0.5)
            hint = f"did you mean {every[near[0]]}?" if near else f"known here: {', '.join(every.values())}"
            raise ConfigError(f"unknown key {prefix}{key}: {hint}", f"{prefix}{key}")
        for nested in _config_classes(known[key].annotation):
            for item in value if isinstance(value, list | tuple) else (value,):
                refuse_unknown(nested, item, prefix=f"{prefix}{key}.")


def _config_classes(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, types.UnionType, tuple, list):
        return [found for part in get_args(annotation) for found in _config_classes(part)]
    return []
