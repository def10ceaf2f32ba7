"""One small corpus from the generator, with its index, shared by the retrieval tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_core.config import IndexConfig, IngestConfig
from kernel_core.corpus.snapshot import build_snapshot
from kernel_core.retrieval.index import build_index
from kernel_core.store import Store


@pytest.fixture(scope="session")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A snapshot of 300 generated problems."""
    store = Store(tmp_path_factory.mktemp("snapshot"))
    build_snapshot(IngestConfig(generator_rows=300, decontaminate_against=()), store)
    return store


@pytest.fixture(scope="session")
def index_folder(snapshot: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The snapshot's index by the offline embedder. Copy it before spoiling it."""
    folder = tmp_path_factory.mktemp("index")
    build_index(IndexConfig(), snapshot, Store(folder))
    return folder
