"""A sentence-transformers model that needs no download: a tokenizer of the corpus and random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer, models
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

_MAX_TOKENS = 256
_WIDTH = 128


def make_tiny_model(folder: Path, texts: Sequence[str]) -> Path:
    """Make the model in a folder, the same each time; gives the folder."""
    tokenizer = Tokenizer(BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=4096, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(texts[:2000], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=_MAX_TOKENS
    )
    torch.manual_seed(0)
    bert = BertModel(
        BertConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=_WIDTH,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=2 * _WIDTH,
            max_position_embeddings=_MAX_TOKENS,
        )
    )
    bert.save_pretrained(folder / "bert")
    fast.save_pretrained(folder / "bert")
    words = models.Transformer(str(folder / "bert"), max_seq_length=_MAX_TOKENS)
    SentenceTransformer(modules=[words, models.Pooling(_WIDTH)]).save(str(folder / "model"))
    return folder / "model"
