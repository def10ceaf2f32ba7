"""The base of all settings: frozen, unknown keys refused, partial groups completed from their own default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`: groups are merged key by key, any other value replaces the one below."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = laid_over(merged[key], value) if both else value
    return merged


ADVANCED = "advanced"
"""Group of a form for the settings that it does not show."""


def unfolded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a form's values with the settings of each group `advanced` in their places."""
    shown = {
        name: unfolded(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if name != ADVANCED
    }
    return laid_over(shown, unfolded(values[ADVANCED])) if values.get(ADVANCED) else shown


def one_of_or_text(*known: str, other: str) -> Callable[[dict[str, Any]], None]:
    """Return a `json_schema_extra` hook: the field is one of `known`, or free text titled `other`."""

    def offer(schema: dict[str, Any]) -> None:
        kinds = ({"title": "known", "enum": list(known)}, {"title": other})
        schema["anyOf"] = [{"type": schema["type"], **kind} for kind in kinds]
        del schema["type"]

    return offer


def _as_form(schema: dict[str, Any], config_class: type[Config]) -> None:
    """Return the schema of a class for a form. An object without properties is edited as JSON there."""
    if not config_class.FORM:
        return
    fields = schema["properties"]
    folded = ", ".join(f"`{name}`" for name in fields if name not in config_class.FORM)
    advanced = {
        "title": "Advanced",
        "description": f'Other settings as JSON, such as {{"NAME": VALUE}}: {folded} (docs/settings.md).',
        "type": "object",
        "default": {},
    }
    shown = {name: fields[name] for name in config_class.FORM} | {ADVANCED: advanced}
    schema["properties"] = {name: field | {"position": n} for n, (name, field) in enumerate(shown.items())}
    schema.pop("additionalProperties", None)  # a preset may have settings that the form does not show


class Config(BaseModel):
    """Base of all configs: frozen, unknown keys refused, every field described.

    A group that is given in part keeps the rest of its field's default. `problems={"limit": 2}` of an
    evaluation still has the split and the seed of `EvaluateConfig.problems`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_as_form)
    FORM: ClassVar[tuple[str, ...]] = ()
    """Settings that a form shows, in this order; the group `advanced` holds the rest. Empty: it shows all."""

    @model_validator(mode="before")
    @classmethod
    def _keep_the_rest_of_a_group(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        groups = {
            name: laid_over(field.default.model_dump(exclude_unset=True), values[name])
            for name, field in cls.model_fields.items()
            if isinstance(field.default, Config) and isinstance(values.get(name), Mapping)
        }
        return {**values, **groups}
