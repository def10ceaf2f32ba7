"""Settings of the model that writes kernels, and of sampling from it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from kernel_core.config.base import Config, one_of_or_text


class PolicyConfig(Config):
    """The model that writes kernels."""

    FORM: ClassVar[tuple[str, ...]] = ("model", "kind", "endpoint", "device")
    kind: Literal["torch", "tinker", "openai", "scripted"] = Field(
        "torch",
        description="A model in this process, LoRA on a Tinker server, an endpoint, or prepared answers.",
    )
    model: str = Field(
        "shipped",
        description="`shipped` (our tiny policy), `new` (from nothing), or a Hugging Face name or path.",
        json_schema_extra=one_of_or_text("shipped", "new", other="name or path"),
    )
    revision: str | None = Field(
        None, description="The commit of a Hugging Face model, which pins its weights."
    )
    endpoint: str | None = Field(
        None, description="Base URL of an OpenAI-compatible server, or of one with Tinker's API."
    )
    api_key_env: str = Field("OPENAI_API_KEY", description="Environment variable that holds the key.")
    timeout_s: float = Field(
        300.0, gt=0, description="Seconds that an endpoint may take for one request; tried twice."
    )
    concurrency: int = Field(16, ge=1, description="Requests to an endpoint under way at once.")
    extra_body: dict[str, Any] = Field(
        default_factory=dict,
        description="Further keys of each request to an endpoint, such as {top_p: 0.95}.",
    )
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
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="The type of the weights.")
    hidden_size: int = Field(192, ge=32, description="The width of a `new` policy.")
    num_layers: int = Field(5, ge=1, description="The layers of a `new` policy.")
    num_heads: int = Field(6, ge=1, description="The query heads of a `new` policy.")
    vocab_size: int = Field(2048, ge=300, description="The entries of a `new` policy's tokenizer.")
    max_context: int = Field(2048, ge=128, description="Tokens of prompt and completion together.")
    decoding: Literal["growing", "static"] = Field(
        "growing", description="`static` keeps shapes fixed and, on CUDA, replays recorded graphs."
    )

    @model_validator(mode="after")
    def _endpoint_is_named(self) -> Self:
        if self.kind == "openai" and not (self.endpoint or "").startswith(("http://", "https://")):
            raise ValueError(
                "kind = openai needs policy.endpoint, the base URL of a server, for example "
                f"http://localhost:8000/v1; it is {self.endpoint!r}"
            )
        if self.kind == "tinker" and self.model in ("shipped", "new"):
            raise ValueError(
                f"kind = tinker needs policy.model, a name that the server knows; it is {self.model!r}"
            )
        return self


ORIGIN = frozenset({"endpoint", "api_key_env", "timeout_s", "concurrency"})
"""How a policy is reached: settings that decide no result, so that a moved server is no other policy."""


class SamplingConfig(Config):
    """How completions are drawn."""

    temperature: float = Field(1.0, ge=0, description="0 is greedy. Nothing else shapes the distribution.")
    max_new_tokens: int = Field(400, ge=1, description="Tokens of one answer.")
    batch_size: int = Field(64, ge=1, description="Conversations sampled at once.")
