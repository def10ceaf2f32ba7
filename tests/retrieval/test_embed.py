"""Embedders: unit vectors, the same for the same text, from a model that is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernel_core.config import IndexConfig, IngestConfig
from kernel_core.corpus.snapshot import build_snapshot
from kernel_core.errors import NotFound
from kernel_core.problems.generate import generate
from kernel_core.retrieval.embed import OfflineEmbedder
from kernel_core.retrieval.index import build_index, read_vectors
from kernel_core.retrieval.search import open_retriever
from kernel_core.retrieval.vectors import vectors_of
from kernel_core.store import Store


@pytest.fixture(scope="module")
def sources() -> list[str]:
    return [made.problem.source for made in generate("train", 60, 5)]


def test_vectors_are_unit_float32_and_depend_on_the_text_alone(sources: list[str]) -> None:
    embedder = OfflineEmbedder.fit(sources)
    together = embedder.embed(sources)
    alone = np.concatenate([embedder.embed([source]) for source in sources])
    assert together.dtype == np.float32 and together.shape == (60, embedder.dimension)
    assert np.array_equal(together, alone)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    assert np.array_equal(OfflineEmbedder.fit(sources).embed(sources), together)


def test_names_matter_less_than_operators(sources: list[str]) -> None:
    template = (
        "import torch\nclass {c}(torch.nn.Module):\n    def forward(self, {x}):\n        return {body}\n"
    )
    softmax = template.format(c="Model", x="x", body="torch.softmax(x.relu(), dim=-1)")
    renamed = template.format(c="Attention", x="scores", body="torch.softmax(scores.relu(), dim=-1)")
    cumsum = template.format(c="Model", x="x", body="torch.cumsum(x.relu(), dim=-1)")
    same, other = (
        OfflineEmbedder.fit(sources).embed([softmax, renamed, cumsum])[1:]
        @ OfflineEmbedder.fit(sources).embed([softmax])[0]
    )
    assert same > other


def test_a_model_folder_that_is_not_there_is_not_found(snapshot: Store, tmp_path: Path) -> None:
    for name in (str(tmp_path / "no-model"), "./no-model", "~/no/such/model"):
        with pytest.raises(NotFound, match=r"no embedding model .*embedder=offline"):
            build_index(IndexConfig(embedder=name), snapshot, Store(tmp_path / "index"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="could not load the embedding model"):
        build_index(IndexConfig(embedder=str(tmp_path / "empty")), snapshot, Store(tmp_path / "index"))


def make_sentence_transformer(folder: Path) -> None:
    """A tiny sentence-transformers model with random weights and a word tokenizer of our own."""
    import torch
    from sentence_transformers import SentenceTransformer, models
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "torch", "softmax", "relu", "forward", "cumsum", "exp"]
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64
    )
    torch.manual_seed(0)
    bert = BertModel(
        BertConfig(
            vocab_size=len(words),
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
        )
    )
    bert.save_pretrained(folder / "bert")
    fast.save_pretrained(folder / "bert")
    word = models.Transformer(str(folder / "bert"), max_seq_length=64)
    SentenceTransformer(modules=[word, models.Pooling(32)]).save(str(folder / "model"))


def test_any_sentence_transformers_folder_embeds(snapshot: Store, tmp_path: Path) -> None:
    make_sentence_transformer(tmp_path)
    config = IndexConfig(embedder=str(tmp_path / "model"), batch_size=64)
    meta = build_index(config, snapshot, Store(tmp_path / "index")).meta
    assert meta["dimension"] == 32 and meta["embedder"] == config.embedder
    retriever = open_retriever(Store(tmp_path / "index"), snapshot)
    assert len(retriever.search("softmax of relu", 3)) == 3
    described = IndexConfig(embedder=config.embedder, text="described")
    build_index(described, snapshot, Store(tmp_path / "described"))
    assert (tmp_path / "described" / "vectors.faiss").read_bytes() != (
        tmp_path / "index" / "vectors.faiss"
    ).read_bytes()
    assert len(open_retriever(Store(tmp_path / "described")).search("softmax of relu", 3)) == 3


def test_a_corpus_that_has_grown_is_embedded_where_it_is_new(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_sentence_transformer(tmp_path)
    config = IndexConfig(embedder=str(tmp_path / "model"))
    snapshot, index = Store(tmp_path / "snapshot"), Store(tmp_path / "index")
    for rows in (20, 30):
        build_snapshot(IngestConfig(generator_rows=rows, decontaminate_against=()), snapshot)
        with caplog.at_level("INFO"):
            build_index(config, snapshot, index)
    assert "20 vectors of the earlier index can stay" in caplog.text
    assert index.open_sealed("index").meta["num_references"] == 30
    open_retriever(index, snapshot)
    build_index(config, snapshot, Store(tmp_path / "anew"))
    np.testing.assert_allclose(
        vectors_of(read_vectors(index), np.arange(30)),
        vectors_of(read_vectors(Store(tmp_path / "anew")), np.arange(30)),
        atol=1e-5,
    )
