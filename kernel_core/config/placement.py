"""Settings of places: which GPUs of this host work for which role."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from kernel_core.config.base import Config


class PlacementConfig(Config):
    """GPUs by role, numbered as CUDA shows them; see `runs/placement.py` for roles that are left out."""

    learn: tuple[int, ...] = Field((), description="GPUs of the learners; empty: by the number of GPUs.")
    sample: tuple[int, ...] = Field((), description="GPUs of the sampler; empty: by the number of GPUs.")
    judge: tuple[int, ...] = Field(
        (), description="GPUs of the judges; empty: by the number of GPUs, at most `gym.workers`."
    )

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        for role, gpus in self:
            if len(set(gpus)) < len(gpus) or any(gpu < 0 for gpu in gpus):
                raise ValueError(f"placement.{role} names each GPU once, from 0 on; it is {list(gpus)}")
        return self
