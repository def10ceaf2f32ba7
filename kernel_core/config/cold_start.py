"""Settings of supervised training before RL."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from kernel_core.config.base import Config


class ColdStartConfig(Config):
    """Supervised training that precedes RL.

    It imitates a realistic corpus, in which not every kernel is right or fast, so that RL has honest
    head-room; what is left of the three shares are fused and tuned kernels.
    """

    data: tuple[str, ...] = Field(
        (),
        description="Files of chats (JSON lines) to learn from instead of the snapshot's kernels.",
    )
    steps: int = Field(
        400, ge=0, description="Updates; 0, or `cold_start: none`, begins RL with the model as it is."
    )
    batch_tokens: int = Field(8192, ge=256, description="Tokens an update.")
    minibatch_tokens: int | None = Field(
        None, ge=256, description="Tokens in one forward pass; empty: the training's `minibatch_tokens`."
    )
    all_weights: bool = Field(
        False, description="Teach all weights, also where RL trains adapters of `policy.lora_rank`."
    )
    lr: float = Field(1.5e-3, gt=0, description="Learning rate at its highest.")
    warmup: int = Field(20, ge=0, description="Updates until the learning rate is at its highest.")
    weight_decay: float = Field(0.1, ge=0, description="AdamW's.")
    repair_share: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Share of conversations with a second turn, which looks back on the first.",
    )
    mistake_share: float = Field(
        0.35, ge=0, le=1, description="Share of answers that are kernels with a typical fault."
    )
    naive_share: float = Field(
        0.35, ge=0, le=1, description="Share of first answers that launch one kernel an operator."
    )
    lazy_share: float = Field(
        0.0, ge=0, le=1, description="Share of first answers that leave all but the last operator to PyTorch."
    )
    conversations: int = Field(4000, ge=1, description="Examples to learn from.")
    judged: int = Field(
        400, ge=1, description="Kernels that the judge is asked about at most; second turns share them."
    )
    checkpoint_minutes: float | None = Field(
        None, gt=0, description="Minutes between checkpoints; empty: eight over the whole cold start."
    )
    minutes: float | None = Field(None, gt=0, description="Stop after so long.")
    shared: bool = Field(
        False, description="Several `learners` share each update, as in RL; otherwise one process makes it."
    )
    seed: int = Field(0, description="Seeds every draw of this stage.")

    @model_validator(mode="before")
    @classmethod
    def _none_teaches_nothing(cls, values: Any) -> Any:
        return {"steps": 0} if values == "none" else values
