"""Config from nested values and assignments; unknown keys are refused with the nearest known name."""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from kernel_core.config import Config
from kernel_core.errors import ConfigError
from kernel_core.records import Constant
from kernel_core.runs.stage_record import canonical

ConfigT = TypeVar("ConfigT", bound=Config)


def build(config_class: type[ConfigT], values: dict[str, Any]) -> ConfigT:
    """Build a config from nested values; an unknown key or a bad value is one clear `ConfigError`."""
    refuse_unknown(config_class, values, prefix="")
    try:
        return config_class.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{key} = {first['input']!r}: {first['msg'].lower()}", key) from error


def sizes_of(assignments: Sequence[str]) -> dict[str, Constant]:
    """Values of size constants from `NAME=VALUE` words."""
    import yaml

    sizes: dict[str, Constant] = {}
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        try:
            value = yaml.safe_load(text) if separator else None
        except yaml.YAMLError:
            value = None
        if not name or not isinstance(value, int | float | bool | str):
            raise ConfigError(f"--set {assignment!r} is not of the form NAME=VALUE with a number or a word")
        sizes[name] = value
    return sizes


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
            by_name = get_origin(known[key].annotation) is dict and isinstance(value, dict)
            items = value.values() if by_name else value if isinstance(value, list | tuple) else (value,)
            for item in items:
                refuse_unknown(nested, item, prefix=f"{prefix}{key}.")


def _config_classes(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, types.UnionType, tuple, list, dict):
        return [config_class for part in get_args(annotation) for config_class in _config_classes(part)]
    return []


def without_defaults(
    given: Mapping[str, Any], preset: Mapping[str, Any], resolved: Config, *declared: Config
) -> dict[str, Any]:
    """Return the settings that a caller chose, of all that a form sends.

    A setting that the preset resolves to anyhow is left out. So is one that the preset does not name, at a
    default that `declared` has: before or after the settings of a kind were filled in.
    """
    defaults = [*declared, *map(_unfilled, declared)]
    values = [default.model_dump(mode="json") for default in defaults]
    now, chosen = resolved.model_dump(mode="json"), dict[str, Any]()
    for name, value in given.items():
        groups = [group for default in defaults if isinstance(group := getattr(default, name, None), Config)]
        current = getattr(resolved, name, None)
        if groups and isinstance(current, Config) and isinstance(value, Mapping):
            if inner := without_defaults(value, preset.get(name) or {}, current, *groups):
                chosen[name] = inner
            continue
        if isinstance(current, Mapping) and _is_same_groups(value, preset.get(name) or {}, current):
            continue
        (read,) = canonical({name: value}).values()
        is_default = name not in preset and any(
            name in mapping and mapping[name] == read for mapping in values
        )
        if not is_default and (name not in now or now[name] != read):
            chosen[name] = value
    return chosen


def _is_same_groups(given: Any, preset: Mapping[str, Any], resolved: Mapping[str, Any]) -> bool:
    """True if `given` has the same named configs as `resolved`, and nothing was chosen in any of them."""
    if not isinstance(given, Mapping) or not resolved or given.keys() != resolved.keys():
        return False
    return all(
        isinstance(config, Config)
        and isinstance(given[name], Mapping)
        and not without_defaults(given[name], preset.get(name) or {}, config, type(config).model_construct())
        for name, config in resolved.items()
    )


def _unfilled(config: Config) -> Config:
    """Return the config with the written values, and otherwise the defaults that its class declares."""
    return type(config).model_construct(**{name: getattr(config, name) for name in config.model_fields_set})
