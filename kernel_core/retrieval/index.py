"""Index: one vector per distinct reference, its best kernel beside it, sealed with its inputs' digests.

- `vectors.faiss`: its kind depends on the number of vectors.
- `words.npz`: BM25.
- `exemplars.parquet`: row i belongs to vector i.
- `references.parquet`: hashes, for exclusion and diversity.
- `probe.npy`: a known text's vector, by which a changed model is noticed.
- `rarity.npy`: of the offline embedder only.

No pickles. A killed build embeds nothing twice. Nor does a build over a corpus that has grown, where the
vectors do not depend on it.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from pathlib import PurePosixPath

import faiss
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from kernel_core.config import IndexConfig
from kernel_core.corpus import table
from kernel_core.corpus.normalise import NORMALISER_VERSION, fingerprint
from kernel_core.corpus.snapshot import load_snapshot
from kernel_core.errors import CallerError, Corrupt
from kernel_core.progress import Progress, silent
from kernel_core.records import Exemplar, Verdict, sha256_text
from kernel_core.retrieval.describe import text_for
from kernel_core.retrieval.embed import (
    OFFLINE,
    Embedder,
    OfflineEmbedder,
    SentenceTransformerEmbedder,
    Vectors,
)
from kernel_core.retrieval.vectorise import npy_bytes, read_npy, vectorise
from kernel_core.retrieval.vectors import build_faiss, kind_for, vectors_of
from kernel_core.retrieval.words import WordIndex
from kernel_core.store import MANIFEST, Manifest, Store, digest_of

INDEX_VERSION = "2"
"""Changes whenever the same snapshot gives another index, or its files another meaning."""

VECTORS, WORDS, EXEMPLARS, REFERENCES, PROBE, RARITY = (
    "vectors.faiss",
    "words.npz",
    "exemplars.parquet",
    "references.parquet",
    "probe.npy",
    "rarity.npy",
)
PROBE_TEXT = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(torch.relu(x @ x.T), dim=-1)
"""
SAME_MODEL = 0.999
"""Cosine similarity of the probe below which the model is another one than built the index."""

_GRADES = ("tuned", "fused", "", "naive")
_LANGUAGES = ("triton", "inductor_triton", "cuda_cpp")

logger = logging.getLogger(__name__)


def build_index(config: IndexConfig, snapshot: Store, store: Store, progress: Progress = silent) -> Manifest:
    """Embed and index a sealed snapshot into `store`; gives the manifest (kind `index`).

    Raises `CallerError` when no exemplar may be shown, `NotFound` for a model path that is not there.
    """
    corpus_digest = digest_of(snapshot.open_sealed("snapshot").model_dump())
    digest = digest_of(
        [INDEX_VERSION, NORMALISER_VERSION, table.SCHEMA_VERSION, config.embedder, config.text, corpus_digest]
    )
    if store.sealed():
        manifest = store.open_sealed("index")
        if manifest.meta["config_digest"] == digest:
            return manifest
        logger.info("%s holds an index of another corpus or embedder: rebuilding", store.root)
    corpus = load_snapshot(snapshot)
    chosen = best_exemplars(corpus)
    if not chosen:
        raise CallerError(
            f"none of the {len(corpus)} exemplars in {snapshot.root} may be shown: all are blocked or known "
            "to be wrong; ingest a source with correct kernels"
        )
    texts = [text_for(config.text, exemplar.reference_code) for exemplar in chosen]
    embedder = open_embedder(config.embedder, config.device, config.batch_size, texts=texts)
    probe = embedder.embed([PROBE_TEXT])[0]
    known = _vectors_that_stay(store, config, probe)
    vectors = vectorise(texts, embedder, store.child(f"shards/{digest[:16]}"), progress, known)
    kind = kind_for(len(chosen))
    store.remove(MANIFEST)  # from here on the files are those of the new index
    files = {
        VECTORS: store.write(VECTORS, bytes(faiss.serialize_index(build_faiss(vectors, kind)).tobytes())),
        WORDS: store.write(WORDS, WordIndex.build([row.reference_code for row in chosen]).to_bytes()),
        EXEMPLARS: store.write(EXEMPLARS, table.to_parquet(chosen)),
        REFERENCES: store.write(REFERENCES, _references(chosen, texts)),
        PROBE: store.write(PROBE, npy_bytes(probe)),
    }
    if isinstance(embedder, OfflineEmbedder):
        files[RARITY] = store.write(RARITY, npy_bytes(embedder.rarity))
    meta = {
        "config_digest": digest,
        "index_version": INDEX_VERSION,
        "normaliser_version": NORMALISER_VERSION,
        "embedder": config.embedder,
        "text": config.text,
        "dimension": int(vectors.shape[1]),
        "kind": kind,
        "corpus_digest": corpus_digest,
        "num_references": len(chosen),
        "num_exemplars_in_corpus": len(corpus),
    }
    manifest = store.seal("index", files, meta)
    store.remove("shards")
    return manifest


def rebuild_command(index: Store) -> str:
    """Return the command that rebuilds a run's index, as it is typed."""
    run = PurePosixPath(index.root).parent
    return f"build it again with `dojo index run={run.name} root={run.parent}`"


def open_embedder(
    name: str,
    device: str,
    batch_size: int,
    *,
    texts: Sequence[str] = (),
    rarity: Vectors | None = None,
) -> Embedder:
    """Open the embedder of a name; the offline one from stored rarities, or fitted to `texts` without
    them."""
    if name != OFFLINE:
        return SentenceTransformerEmbedder(name, device, batch_size)
    return OfflineEmbedder(rarity) if rarity is not None else OfflineEmbedder.fit(texts)


def best_exemplars(exemplars: Sequence[Exemplar]) -> list[Exemplar]:
    """Return the best kernel of each reference that may be shown, references in order of first appearance.

    Never a blocked row, a mistake or a row known to be wrong. Triton before other languages, verified before
    unverified, a claim of correctness before none, tuned before fused before unknown before naive, then the
    faster: what our judge found, then what is claimed.
    """
    best: dict[str, Exemplar] = {}
    for exemplar in exemplars:
        if exemplar.split == "blocked" or _known_to_be_wrong(exemplar) or _grade(exemplar) is None:
            continue
        rival = best.get(exemplar.reference_hash)
        if rival is None or _merit(exemplar) < _merit(rival):
            best[exemplar.reference_hash] = exemplar
    return list(best.values())


def _known_to_be_wrong(exemplar: Exemplar) -> bool:
    if exemplar.verified is not None:
        return exemplar.verified is not Verdict.CORRECT
    return exemplar.claimed_correct is False


def _grade(exemplar: Exemplar) -> int | None:
    return _GRADES.index(exemplar.grade) if exemplar.grade in _GRADES else None


def _merit(exemplar: Exemplar) -> tuple[int, bool, bool, int, float, float]:
    """Smaller is better."""
    grade = _grade(exemplar)
    return (
        _LANGUAGES.index(exemplar.language),
        exemplar.verified is None,
        exemplar.claimed_correct is not True,
        len(_GRADES) if grade is None else grade,
        -(exemplar.best_known_speedup or 0.0),
        -(exemplar.claimed_speedup or 0.0),
    )


def _vectors_that_stay(
    store: Store, config: IndexConfig, probe: Vectors
) -> dict[str, npt.NDArray[np.float32]]:
    """Vectors of an earlier index by their text's SHA-256, if the same model would give them again.

    The offline embedder's vectors depend on the whole corpus, and a compressed index has lost them.
    """
    if config.embedder == OFFLINE or not store.sealed():
        return {}
    meta = store.open_sealed("index").meta
    same = [meta.get(name) for name in ("index_version", "embedder", "text")]
    if same != [INDEX_VERSION, config.embedder, config.text] or meta["kind"] == "ivfpq":
        return {}
    before = read_npy(store.read(PROBE), store.path(PROBE))
    if before.shape != probe.shape or float(before @ probe) < SAME_MODEL:
        return {}
    hashes = read_references(store)["text_sha256"].to_pylist()
    vectors = vectors_of(read_vectors(store), np.arange(len(hashes)))
    logger.info("%d vectors of the earlier index can stay", len(hashes))
    return dict(zip(hashes, vectors, strict=True))


def read_vectors(index: Store) -> faiss.Index:
    """Read the FAISS index. Raises `Corrupt`."""
    try:
        return faiss.deserialize_index(np.frombuffer(index.read(VECTORS), np.uint8))
    except RuntimeError as error:
        raise Corrupt(f"{index.path(VECTORS)} is not a FAISS index; {rebuild_command(index)}") from error


def read_references(index: Store) -> pa.Table:
    """Read the hashes of each row's reference. Raises `Corrupt`."""
    try:
        return pq.read_table(io.BytesIO(index.read(REFERENCES)))
    except (pa.ArrowInvalid, OSError) as error:
        raise Corrupt(f"{index.path(REFERENCES)} is not a Parquet file; {rebuild_command(index)}") from error


def _references(chosen: Sequence[Exemplar], texts: Sequence[str]) -> bytes:
    columns = {
        "exemplar_id": [exemplar.id for exemplar in chosen],
        "reference_hash": [exemplar.reference_hash for exemplar in chosen],
        "structure_hash": [fingerprint(exemplar.reference_code).structure_hash for exemplar in chosen],
        "text_sha256": [sha256_text(text) for text in texts],
    }
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd", write_statistics=False)
    return buffer.getvalue()
