"""The base of all settings: frozen, unknown keys refused, partial groups completed from their own default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`: groups are merged key by key, any other value replaces the one below."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = laid_over(merged[key], value) if both else value
    return merged


class Config(BaseModel):
    """Base of all configs: frozen, unknown keys refused, every field described.

    A group that is given in part keeps the rest of its field's default. `problems={"limit": 2}` of an
    evaluation still has the split and the seed of `EvaluateConfig.problems`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
