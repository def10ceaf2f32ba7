"""Settings of the model that writes kernels, and of sampling from it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from kernel_core.config.base import Config, one_of_or_text


class PolicyConfig(Config):
    """Model that writes kernels."""

    FORM: ClassVar[tuple[str, ...]] = ("model", "kind", "endpoint", "device")
    kind: Literal["torch", "tinker", "openai", "scripted"] = Field(
        "torch",
        description="Local model, LoRA on a Tinker server, OpenAI-compatible endpoint, or scripted answers.",
    )
    model: str = Field(
        "shipped",
        description="`shipped` (2.6 M parameters), `new` (random weights), or a Hugging Face name or path.",
        json_schema_extra=one_of_or_text("shipped", "new", other="name or path"),
    )
    revision: str | None = Field(None, description="Commit of a Hugging Face model.")
    endpoint: str | None = Field(None, description="Base URL of an OpenAI-compatible or Tinker server.")
    api_key_env: str = Field("OPENAI_API_KEY", description="Environment variable that holds the API key.")
    timeout_s: float = Field(300.0, gt=0, description="Request timeout in seconds; a request is tried twice.")
    concurrency: int = Field(16, ge=1, description="Concurrent requests to an endpoint.")
    extra_body: dict[str, Any] = Field(
        default_factory=dict,
        description="Extra keys of each request body, such as {top_p: 0.95}.",
    )
    enable_thinking: bool | None = Field(
        None,
        description="`enable_thinking` of the chat template (Qwen3), not for `openai`; null: the template's "
        "default.",
    )
    lora_rank: int | None = Field(None, ge=1, description="LoRA rank; null: full fine-tuning.")
    gradient_checkpointing: bool = Field(
        False, description="Recompute activations in the backward pass: less memory, about a third slower."
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="Device of the policy.")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="Data type of the weights.")
    hidden_size: int = Field(192, ge=32, description="Hidden size of a `new` policy.")
    num_layers: int = Field(5, ge=1, description="Layers of a `new` policy.")
    num_heads: int = Field(6, ge=1, description="Query heads of a `new` policy.")
    vocab_size: int = Field(2048, ge=300, description="Largest vocabulary of a `new` policy's tokenizer.")
    max_context: int = Field(
        2048, ge=128, description="Context length in tokens, prompt and completion together."
    )
    decoding: Literal["growing", "static"] = Field(
        "growing", description="`static`: fixed shapes and, on CUDA, CUDA graphs."
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
"""Settings that say how a policy is reached and decide no result, so that a moved server is no other
policy."""


class SamplingConfig(Config):
    """Sampling of completions."""

    temperature: float = Field(
        1.0, ge=0, description="Sampling temperature; 0: greedy. There is no top-p or top-k."
    )
    max_new_tokens: int = Field(400, ge=1, description="Maximum tokens per answer.")
    batch_size: int = Field(64, ge=1, description="Conversations per sampling batch.")
