"""Policy from scratch: a byte-level BPE tokenizer trained on given texts, and a small Qwen3 model.

The tokenizer is made for kernels. A newline with its indentation is one piece, every digit stands alone
(sizes are read digit by digit), and inside a line merges may cross spaces and punctuation, so that a
phrase such as `tl.load(x_ptr + offs, mask=mask)` costs few tokens. No merge crosses a newline.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from kernel_core.config import PolicyConfig
from kernel_core.errors import ConfigError
from kernel_core.policy.torch_policy import TorchPolicy

log = logging.getLogger(__name__)

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Earlier turns are rendered unchanged, so that a conversation's next prompt extends the one before."""

_PIECES = r"\n+[ \t]*|\d"
"""Pieces split off before merging: line breaks with the indentation after them, and digits."""

MAX_TOKEN_CHARS = 32
"""Longer phrases are rare outside the texts that the tokenizer was trained on."""


def new_policy(config: PolicyConfig, texts: Iterable[str], seed: int) -> TorchPolicy:
    """Create a policy with random weights, and a tokenizer trained on `texts`.

    The same config, texts and seed give the same weights and the same tokens.
    """
    tokenizer = train_tokenizer(texts, vocab_size=config.vocab_size)
    model = _new_model(config, tokenizer, seed)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    log.info("new policy: %.2f M parameters, %d tokens", parameters / 1e6, len(tokenizer))
    return TorchPolicy(model, tokenizer, config, version=f"new-{_digest(model)[:12]}")


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a lossless byte-level BPE with at most `vocab_size` entries, roles and end token included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, END, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=MAX_TOKEN_CHARS,
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def _new_model(config: PolicyConfig, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    if config.hidden_size % (2 * config.num_heads):
        raise ConfigError(
            f"policy.hidden_size = {config.hidden_size} must be a multiple of twice policy.num_heads = "
            f"{config.num_heads}: every head gets an even share"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=config.hidden_size,
                intermediate_size=3 * config.hidden_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                num_key_value_heads=max(1, config.num_heads // 2),
                head_dim=config.hidden_size // config.num_heads,
                max_position_embeddings=config.max_context,
                tie_word_embeddings=True,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
                bos_token_id=None,
            )
        )
    return model.to(device=config.device, dtype=getattr(torch, config.dtype))


def _digest(model: Qwen3ForCausalLM) -> str:
    """Return a digest of the initial weights: another seed, size or tokenizer changes it."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()
