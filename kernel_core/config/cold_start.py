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
        description="Chat files (JSON lines) to train on in place of the snapshot's kernels.",
    )
    steps: int = Field(
        400,
        ge=0,
        description="Optimiser updates; 0 or `cold_start=none` skips the cold start.",
    )
    batch_tokens: int = Field(8192, ge=256, description="Tokens per update.")
    minibatch_tokens: int | None = Field(
        None, ge=256, description="Tokens per forward pass; null: the training's `minibatch_tokens`."
    )
    all_weights: bool = Field(
        False, description="Train all weights, also where RL trains adapters of `policy.lora_rank`."
    )
    lr: float = Field(
        1.5e-3, gt=0, description="Peak learning rate; pretrained models: 2e-5, or 2e-4 with LoRA."
    )
    loss_floor: float = Field(
        0.0,
        ge=0,
        description="Nats: tokens with a smaller loss are not trained, which keeps entropy for RL.",
    )
    warmup: int = Field(20, ge=0, description="Linear warm-up, in updates.")
    weight_decay: float = Field(0.1, ge=0, description="AdamW weight decay.")
    repair_share: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Share of two-turn conversations, in which the second turn improves the first.",
    )
    mistake_share: float = Field(0.35, ge=0, le=1, description="Share of answers with a typical bug.")
    naive_share: float = Field(
        0.35, ge=0, le=1, description="Share of first answers with one unfused kernel per operator."
    )
    lazy_share: float = Field(
        0.0, ge=0, le=1, description="Share of first answers that leave all but the last operator to PyTorch."
    )
    conversations: int = Field(4000, ge=1, description="Training conversations.")
    judged: int = Field(
        400, ge=1, description="Maximum number of kernels judged for the feedback of second turns."
    )
    checkpoint_minutes: float | None = Field(
        None, gt=0, description="Minutes between checkpoints; null: eight checkpoints in all."
    )
    minutes: float | None = Field(None, gt=0, description="Time limit in minutes; null: none.")
    shared: bool = Field(
        False, description="Share each update between all `learners`; false: one process trains."
    )
    seed: int = Field(
        0, description="Random seed of the conversations, their order and a `new` policy's weights."
    )

    @model_validator(mode="before")
    @classmethod
    def _none_teaches_nothing(cls, values: Any) -> Any:
        return {"steps": 0} if values == "none" else values
