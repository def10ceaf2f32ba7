"""Memory of an RL step on its fullest GPU, computed from a model's shapes, for transformers like Qwen2.5.

It follows what this package does. One learner holds float32 weights and computes in bfloat16 by autocast; the
sampler reads the same weights. Several learners hold shards, and GPU 0 has the sampler's whole bfloat16 copy
as well. Layers are computed again in the backward pass (`policy.gradient_checkpointing`).

Not counted: the bytes that an allocator loses between blocks, and the joined weights of `decoding: static`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_core.learn.chunked_logits import LOGITS_BYTES, PART_BYTES

if TYPE_CHECKING:
    from transformers import Qwen2Config

GIB = 1 << 30
CONTEXT_BYTES = GIB * 3 // 2
"""A process's CUDA context, libraries and communication buffers; an estimate."""
LOGITS_COPIES = 5
"""Tensors as large as the logits that `token_logprobs` has at once."""
LAYERS_TOGETHER = 2
"""Layers that FSDP2 has gathered at a time: the one that computes and the next."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """A decoder with grouped-query attention and a gated feed-forward part, biases on q, k and v."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    tied: bool
    """True if the head shares the embedding's weights."""
    head_dim: int = 128

    @property
    def linears(self) -> list[tuple[int, int]]:
        """Inputs and outputs of a layer's linear maps."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = [(self.hidden, query), (self.hidden, key), (self.hidden, key), (query, self.hidden)]
        return [*attention, *[(self.hidden, self.intermediate)] * 2, (self.intermediate, self.hidden)]

    @property
    def layer(self) -> int:
        """Weights of a layer."""
        biases = (self.heads + 2 * self.kv_heads) * self.head_dim
        return sum(inputs * outputs for inputs, outputs in self.linears) + biases + 2 * self.hidden

    @property
    def outside(self) -> int:
        """Weights outside the layers."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def total(self) -> int:
        """Return the number of all weights."""
        return self.layers * self.layer + self.outside

    def adapters(self, rank: int) -> int:
        """Weights of LoRA adapters on all linear maps of the layers."""
        return self.layers * rank * sum(inputs + outputs for inputs, outputs in self.linears)

    def model_config(self) -> Qwen2Config:
        """Return the configuration of a transformers model of this shape."""
        from transformers import Qwen2Config

        return Qwen2Config(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            tie_word_embeddings=self.tied,
        )


QWEN = {
    "0.5B": DecoderShape(896, 24, 14, 2, 4864, 151_936, tied=True, head_dim=64),
    "1.5B": DecoderShape(1536, 28, 12, 2, 8960, 151_936, tied=True),
    "3B": DecoderShape(2048, 36, 16, 2, 11_008, 151_936, tied=True),
    "7B": DecoderShape(3584, 28, 28, 4, 18_944, 152_064, tied=False),
    "14B": DecoderShape(5120, 48, 40, 8, 13_824, 152_064, tied=False),
    "32B": DecoderShape(5120, 64, 40, 8, 27_648, 152_064, tied=False),
}
"""Qwen2.5's."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """Method and sizes of a step."""

    learners: int = 1
    lora_rank: int | None = None
    """None where all weights train."""
    minibatch_tokens: int = 8192
    """Tokens in one pass of one learner, padding included."""
    row_tokens: int = 4096
    """Tokens of a prompt and its answer."""
    answer_tokens: int = 1024
    sampled_rows: int = 64
    """Conversations sampled at once."""
    group_size: int = 8
    """Conversations with the same prompt, which is read once."""
    compute_bytes: int = 2
    """Bytes per number in matrix products: 2 for bfloat16."""


def by_phase(shape: DecoderShape, work: StepWork) -> dict[str, dict[str, int]]:
    """Bytes on GPU 0 by phase and part; a phase's memory is the sum of its parts."""
    always = _held(shape, work)
    trained = _trained(shape, work)
    gradients = 4 * trained // work.learners
    sampling = {
        "cache": work.sampled_rows * cache_of_row(shape, work),
        "prompts": _prompts(shape, work),
    }
    reading = {
        "gradients": gradients,
        "gathered": _gathered(shape, work),
        "activations": _activations(shape, work),
        "logits": LOGITS_COPIES * _logits(shape, work),
    }
    # The fused optimiser of whole weights needs nothing beside them; that of shards needs the roots of √v.
    stepping = {"gradients": gradients, "temporary": gradients if work.learners > 1 else 0}
    largest = shape.vocabulary * shape.hidden if work.lora_rank is None else 0
    publishing = {"one whole tensor": largest * (4 + 2) if work.learners > 1 else 0}
    phases = {"sample": sampling, "update": reading, "optimiser": stepping, "publish": publishing}
    return {phase: always | parts for phase, parts in phases.items()}


def peak(shape: DecoderShape, work: StepWork) -> tuple[str, int]:
    """Return the phase that takes most memory, and its bytes."""
    totals = {phase: sum(parts.values()) for phase, parts in by_phase(shape, work).items()}
    phase = max(totals, key=lambda name: totals[name])
    return phase, totals[phase]


def rows_that_fit(shape: DecoderShape, work: StepWork, gpu_bytes: int) -> int:
    """Conversations that can be sampled at once, at most the work's; 0 where the step does not fit at all."""
    phases = {phase: sum(parts.values()) for phase, parts in by_phase(shape, work).items()}
    besides = phases.pop("sample") - work.sampled_rows * cache_of_row(shape, work)
    if max(phases.values()) > gpu_bytes:
        return 0
    return max(0, min(work.sampled_rows, (gpu_bytes - besides) // cache_of_row(shape, work)))


def cache_of_row(shape: DecoderShape, work: StepWork) -> int:
    """Keys and values of one conversation."""
    numbers = 2 * shape.layers * shape.kv_heads * shape.head_dim
    return work.row_tokens * numbers * work.compute_bytes


def kept_by_layer(shape: DecoderShape, work: StepWork) -> int:
    """Return the bytes that one layer keeps for its backward pass, without its input.

    Each norm keeps its input in float32, the normed values and its result; attention keeps q, k, v and its
    result; the feed-forward part keeps four tensors.
    """
    low, residual = work.compute_bytes, _residual_bytes(work)
    norms = 4 * (1 if residual == 4 else 2) + 2 * residual + 2 * low
    attention = 2 * (shape.heads + shape.kv_heads) * shape.head_dim
    numbers = attention + 4 * shape.intermediate
    if work.lora_rank is not None and work.learners == 1:  # autocast keeps a copy for each adapter
        numbers += 5 * shape.hidden + shape.heads * shape.head_dim + shape.intermediate
    return work.minibatch_tokens * (norms * shape.hidden + low * numbers)


def _activations(shape: DecoderShape, work: StepWork) -> int:
    """Return the bytes of all layers' inputs, and within one layer of all it keeps and its three
    gradients."""
    passing = 3 * shape.intermediate * work.compute_bytes
    inputs = shape.layers * shape.hidden * _residual_bytes(work)
    return work.minibatch_tokens * (inputs + passing) + kept_by_layer(shape, work)


def _trained(shape: DecoderShape, work: StepWork) -> int:
    return shape.total if work.lora_rank is None else shape.adapters(work.lora_rank)


def _held(shape: DecoderShape, work: StepWork) -> dict[str, int]:
    """Return the bytes held in every phase."""
    n, trained = work.learners, _trained(shape, work)
    frozen = 0 if work.lora_rank is None else shape.total
    copy = work.compute_bytes * shape.total + (4 * trained if work.lora_rank is not None else 0)
    return {
        "contexts": CONTEXT_BYTES * (2 if n > 1 else 1),
        "weights": (4 * trained + work.compute_bytes * frozen) // n,
        "moments": 8 * trained // n,
        "sampler": copy if n > 1 else 0,
    }


def _gathered(shape: DecoderShape, work: StepWork) -> int:
    """Weights in the type that computes, and gradients of whole tensors on their way to the shards."""
    together = LAYERS_TOGETHER * shape.layer + shape.outside
    if work.learners == 1:  # autocast keeps its casts until the backward pass has been through
        return work.compute_bytes * shape.total if work.lora_rank is None and work.compute_bytes == 2 else 0
    reduced = max(shape.layer, shape.outside) if work.lora_rank is None else 0
    return work.compute_bytes * together + (work.compute_bytes + 4) * reduced


def _residual_bytes(work: StepWork) -> int:
    """Return the bytes per number between layers: autocast leaves it in float32 where the weights are."""
    return 4 if work.learners == 1 and work.lora_rank is None else work.compute_bytes


def _prompts(shape: DecoderShape, work: StepWork) -> int:
    """Three tensors of the feed-forward part and six between layers, while all prompts are read together."""
    tokens = max(1, work.sampled_rows // work.group_size) * (work.row_tokens - work.answer_tokens)
    return tokens * work.compute_bytes * (3 * shape.intermediate + 6 * shape.hidden)


def _logits(shape: DecoderShape, work: StepWork) -> int:
    rows = max(1, work.minibatch_tokens // work.row_tokens)
    whole = 4 * rows * work.answer_tokens * shape.vocabulary
    return whole if whole <= LOGITS_BYTES else PART_BYTES
