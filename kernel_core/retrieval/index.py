"""The index: one vector a distinct reference, its best kernel beside it, sealed with what made it.

`vectors.faiss` (exact up to `MAX_FLAT`, else HNSW), `exemplars.parquet` (row i belongs to vector i),
`references.parquet` (hashes, for exclusion and diversity), `probe.npy` (a known text's vector, by which a
changed model is noticed) and, for the offline embedder, `rarity.npy`. No pickles. Vectors are written in
shards as they are made, so a killed build embeds nothing twice.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence

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
from kernel_core.records import Exemplar
from kernel_core.retrieval.embed import (
    OFFLINE,
    Embedder,
    OfflineEmbedder,
    SentenceTransformerEmbedder,
    Vectors,
)
from kernel_core.retrieval.threads import one_thread
from kernel_core.store import MANIFEST, Manifest, Store, digest_of

INDEX_VERSION = "1"
"""Changes whenever the same snapshot gives another index, or its files another meaning."""

MAX_FLAT = 20_000
"""Vectors up to which exact search is fast enough on one core."""

VECTORS, EXEMPLARS, REFERENCES, PROBE, RARITY = (
    "vectors.faiss",
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

_SHARD_ROWS = 1024
_HNSW_LINKS = 32
_HNSW_BUILD_BREADTH = 80
_HNSW_SEARCH_BREADTH = 128
_GRADES = ("tuned", "fused", "", "naive")
_LANGUAGES = ("triton", "inductor_triton", "cuda_cpp")

logger = logging.getLogger(__name__)


def build_index(config: IndexConfig, snapshot: Store, store: Store, progress: Progress = silent) -> Manifest:
    """Embed and index a sealed snapshot into `store`; gives the manifest (kind `index`).

    Raises `CallerError` when no exemplar may be shown, `NotFound` for a model path that is not there.
    """
    corpus_digest = digest_of(snapshot.open_sealed("snapshot").model_dump())
    digest = digest_of([INDEX_VERSION, NORMALISER_VERSION, config.embedder, corpus_digest])
    if store.sealed():
        manifest = store.open_sealed("index")
        if manifest.meta["config_digest"] == digest:
            return manifest
        logger.info("%s holds an index of another corpus or embedder: rebuilding", store.root)
        store.remove(MANIFEST)
    corpus = load_snapshot(snapshot)
    chosen = best_exemplars(corpus)
    if not chosen:
        raise CallerError(
            f"none of the {len(corpus)} exemplars in {snapshot.root} may be shown: all are blocked or known "
            "to be wrong; ingest a source with correct kernels"
        )
    texts = [exemplar.reference_code for exemplar in chosen]
    embedder = open_embedder(config.embedder, config.device, config.batch_size, texts=texts)
    shards = f"shards/{digest[:16]}"
    vectors = _embedded(texts, embedder, store.child(shards), progress)
    files = {
        VECTORS: store.write(VECTORS, _faiss_bytes(vectors)),
        EXEMPLARS: store.write(EXEMPLARS, table.to_parquet(chosen)),
        REFERENCES: store.write(REFERENCES, _references(chosen)),
        PROBE: store.write(PROBE, npy_bytes(embedder.embed([PROBE_TEXT])[0])),
    }
    if isinstance(embedder, OfflineEmbedder):
        files[RARITY] = store.write(RARITY, npy_bytes(embedder.rarity))
    meta = {
        "config_digest": digest,
        "index_version": INDEX_VERSION,
        "normaliser_version": NORMALISER_VERSION,
        "embedder": config.embedder,
        "dimension": int(vectors.shape[1]),
        "kind": "flat" if len(chosen) <= MAX_FLAT else "hnsw",
        "corpus_digest": corpus_digest,
        "num_references": len(chosen),
        "num_exemplars_in_corpus": len(corpus),
    }
    manifest = store.seal("index", files, meta)
    store.remove("shards")
    return manifest


def open_embedder(
    name: str,
    device: str,
    batch_size: int,
    *,
    texts: Sequence[str] = (),
    rarity: Vectors | None = None,
) -> Embedder:
    """The embedder of a name; the offline one from stored rarities, or fitted to `texts` without them."""
    if name != OFFLINE:
        return SentenceTransformerEmbedder(name, device, batch_size)
    return OfflineEmbedder(rarity) if rarity is not None else OfflineEmbedder.fit(texts)


def best_exemplars(exemplars: Sequence[Exemplar]) -> list[Exemplar]:
    """Of each reference the best kernel that may be shown, references in order of first appearance.

    Never a blocked row, a mistake or a row known to be wrong. Triton before other languages, a claim of
    correctness before none, tuned before fused before unknown before naive, then the faster claim.
    """
    best: dict[str, Exemplar] = {}
    for exemplar in exemplars:
        if exemplar.split == "blocked" or exemplar.claimed_correct is False or _grade(exemplar) is None:
            continue
        rival = best.get(exemplar.reference_hash)
        if rival is None or _merit(exemplar) < _merit(rival):
            best[exemplar.reference_hash] = exemplar
    return list(best.values())


def _grade(exemplar: Exemplar) -> int | None:
    return _GRADES.index(exemplar.grade) if exemplar.grade in _GRADES else None


def _merit(exemplar: Exemplar) -> tuple[int, bool, int, float]:
    """Smaller is better."""
    grade = _grade(exemplar)
    return (
        _LANGUAGES.index(exemplar.language),
        exemplar.claimed_correct is not True,
        len(_GRADES) if grade is None else grade,
        -(exemplar.claimed_speedup or 0.0),
    )


def _embedded(texts: Sequence[str], embedder: Embedder, shards: Store, progress: Progress) -> Vectors:
    """Vectors of the texts, taken from the shards that an earlier run finished where they are sound."""
    written = {line["shard"]: line["sha256"] for line in shards.lines("done.jsonl")}
    pieces: list[Vectors] = []
    for start in range(0, len(texts), _SHARD_ROWS):
        name = f"{start // _SHARD_ROWS:05d}.npy"
        piece = _sound_shard(shards, name, written.get(name))
        if piece is None:
            piece = embedder.embed(texts[start : start + _SHARD_ROWS])
            sha256 = shards.write(name, npy_bytes(piece))
            shards.append_line("done.jsonl", {"shard": name, "sha256": sha256})
        pieces.append(piece)
        progress("embed", min(start + _SHARD_ROWS, len(texts)), len(texts))
    return np.concatenate(pieces)


def _sound_shard(shards: Store, name: str, sha256: str | None) -> Vectors | None:
    if sha256 is None or not shards.exists(name):
        return None
    try:
        return read_npy(shards.read(name, sha256=sha256), shards.path(name))
    except Corrupt as error:
        logger.warning("%s: embedding that part again", error)
        return None


def _faiss_bytes(vectors: Vectors) -> bytes:
    index: faiss.Index = faiss.IndexFlatIP(vectors.shape[1])
    if len(vectors) > MAX_FLAT:
        index = faiss.IndexHNSWFlat(vectors.shape[1], _HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = _HNSW_BUILD_BREADTH
        index.hnsw.efSearch = _HNSW_SEARCH_BREADTH
    with one_thread():  # HNSW links depend on the order in which threads insert
        index.add(np.ascontiguousarray(vectors))
    return bytes(faiss.serialize_index(index).tobytes())


def _references(chosen: Sequence[Exemplar]) -> bytes:
    columns = {
        "exemplar_id": [exemplar.id for exemplar in chosen],
        "reference_hash": [exemplar.reference_hash for exemplar in chosen],
        "structure_hash": [fingerprint(exemplar.reference_code).structure_hash for exemplar in chosen],
    }
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd", write_statistics=False)
    return buffer.getvalue()


def npy_bytes(array: npt.NDArray[np.float32]) -> bytes:
    """An array as the bytes of an `.npy` file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def read_npy(data: bytes, where: str) -> Vectors:
    """The array in the bytes of an `.npy` file; anything else is `Corrupt`."""
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise Corrupt(f"{where} is not an array: {error}; run `dojo index` again") from error
    if array.dtype != np.float32:
        raise Corrupt(f"{where} holds {array.dtype}, float32 was wanted; run `dojo index` again")
    return np.asarray(array, np.float32)
