"""The base of all settings: frozen, unknown keys refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """Base of all configs: frozen, unknown keys refused, every field described."""

    model_config = ConfigDict(frozen=True, extra="forbid")
