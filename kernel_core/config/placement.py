"""Settings of places: which hosts and which of their GPUs work for which role."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from kernel_core.config.base import Config

PLACES = ("learners", "gym.cluster", "gym.ray_address")
"""Settings of a training beside `placement` that say where it works: they may change when a run goes on."""


class PlacementConfig(Config):
    """GPUs by role, numbered as CUDA shows them; see `runs/placement.py` for roles that are left out."""

    cluster: Literal["local", "ray"] = Field(
        "local",
        description="Learners and sampler on this host, or on the Ray cluster at `gym.ray_address`; "
        "judges follow unless `gym.cluster` is set.",
    )
    learn: tuple[int, ...] = Field((), description="GPUs of the learners; []: chosen by the number of GPUs.")
    sample: tuple[int, ...] = Field((), description="GPUs of the sampler; []: chosen by the number of GPUs.")
    judge: tuple[int, ...] = Field(
        (), description="Indices of visible GPUs for judges; []: automatic, at most `gym.workers` of them."
    )

    @property
    def gpus(self) -> dict[str, tuple[int, ...]]:
        """GPUs of this host by role; none for a role that is not on them."""
        return {"learn": self.learn, "sample": self.sample, "judge": self.judge}

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        for role, gpus in self.gpus.items():
            if self.cluster == "ray" and gpus and role != "judge":
                raise ValueError(f"placement.cluster=ray finds GPUs by itself; leave placement.{role} out")
            if len(set(gpus)) < len(gpus) or any(gpu < 0 for gpu in gpus):
                raise ValueError(f"placement.{role} names each GPU once, from 0 on; it is {list(gpus)}")
        return self
