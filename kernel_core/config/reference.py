"""Reference of every setting with its type, default and meaning: for `--help` and the settings page."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Union

from pydantic.fields import FieldInfo

from kernel_core.config.base import Config


class SettingRow(NamedTuple):
    """Setting of a stage, as it is named on the command line."""

    key: str
    kind: str
    default: str
    meaning: str


def settings_of(config_class: type[Config], prefix: str = "") -> Iterator[SettingRow]:
    """Return the settings of a config and of the groups in it, in order."""
    for name, field in config_class.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Config):
            yield from _of_group(field, f"{prefix}{name}.")
        else:
            yield SettingRow(
                f"{prefix}{name}", _kind(field.annotation), _default(field), field.description or ""
            )


def _of_group(field: FieldInfo, prefix: str) -> Iterator[SettingRow]:
    group = field.annotation
    assert isinstance(group, type) and issubclass(group, Config)
    changed = field.default.model_dump(exclude_unset=True) if isinstance(field.default, Config) else {}
    for setting in settings_of(group, prefix):
        own = changed.get(setting.key.removeprefix(prefix), ...)
        yield setting if own is ... else setting._replace(default=_text(own))


def _kind(annotation: Any) -> str:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return ", ".join(map(str, parts))
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(part) for part in parts if part is not type(None))
    if origin is tuple:
        return f"list[{_kind(parts[0])}]"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return "mapping"
    return str(annotation.__name__)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return "of `rewards`" if "stages" in repr(field.default_factory) else "{}"
    return _text(field.default)


def _text(value: Any) -> str:
    """Return the value as YAML and the command line write it."""
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return re.sub(r"^(True|False)$", lambda match: match[1].lower(), str(value))
