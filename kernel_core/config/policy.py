"""Settings of the model that writes kernels, and of sampling from it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernel_core.config.base import Config


class PolicyConfig(Config):
    """The model that writes kernels."""

    kind: Literal["torch", "openai", "scripted"] = Field(
        "torch", description="A model of ours, one behind an endpoint, or prepared answers."
    )
    model: str = Field(
        "shipped",
        description="`shipped` (our tiny policy), `new` (from nothing), or a Hugging Face name or path.",
    )
    revision: str | None = Field(None, description="Of a Hugging Face model, pinned.")
    endpoint: str | None = Field(None, description="Base URL of an OpenAI-compatible server.")
    api_key_env: str = Field("OPENAI_API_KEY", description="Environment variable that holds the key.")
    enable_thinking: bool | None = Field(
        None, description="Said to a chat template that knows it, as Qwen3's does; empty: its own default."
    )
    lora_rank: int | None = Field(
        None, ge=1, description="Train LoRA adapters of this rank; empty: all weights."
    )
    gradient_checkpointing: bool = Field(
        False, description="Compute activations again in the backward pass: less memory, a third more time."
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where the policy runs.")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="Of the weights.")
    hidden_size: int = Field(192, ge=32, description="Of a `new` policy.")
    num_layers: int = Field(5, ge=1, description="Of a `new` policy.")
    num_heads: int = Field(6, ge=1, description="Of a `new` policy.")
    vocab_size: int = Field(2048, ge=300, description="Of a `new` policy's tokenizer.")
    max_context: int = Field(2048, ge=128, description="Tokens of prompt and completion together.")
    decoding: Literal["growing", "static"] = Field(
        "growing", description="`static` keeps shapes fixed and, on CUDA, replays recorded graphs."
    )


class SamplingConfig(Config):
    """How completions are drawn."""

    temperature: float = Field(1.0, ge=0, description="0 is greedy. Nothing else shapes the distribution.")
    max_new_tokens: int = Field(400, ge=1, description="Tokens of one answer.")
    batch_size: int = Field(64, ge=1, description="Conversations sampled at once.")
