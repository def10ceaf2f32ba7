"""Texts into vectors, in shards that outlive a kill, taking from an earlier index what has not changed."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from kernel_core.errors import Corrupt
from kernel_core.progress import Progress
from kernel_core.records import sha256_text
from kernel_core.retrieval.embed import Embedder, Vectors
from kernel_core.store import Store

_SHARD_ROWS = 1024

logger = logging.getLogger(__name__)


def vectorise(
    texts: Sequence[str],
    embedder: Embedder,
    shards: Store,
    progress: Progress,
    known: Mapping[str, npt.NDArray[np.float32]] | None = None,
) -> Vectors:
    """Embed each text, with shape (texts, dimension).

    Shards that an earlier try finished are taken where they are sound; texts in `known` (by SHA-256, with
    their vectors) are not embedded again.
    """
    written = {line["shard"]: line["sha256"] for line in shards.lines("done.jsonl")}
    pieces: list[Vectors] = []
    for start in range(0, len(texts), _SHARD_ROWS):
        name = f"{start // _SHARD_ROWS:05d}.npy"
        piece = _sound_shard(shards, name, written.get(name))
        if piece is None:
            piece = _embedded(texts[start : start + _SHARD_ROWS], embedder, known or {})
            sha256 = shards.write(name, npy_bytes(piece))
            shards.append_line("done.jsonl", {"shard": name, "sha256": sha256})
        pieces.append(piece)
        progress("embed", min(start + _SHARD_ROWS, len(texts)), len(texts))
    return np.concatenate(pieces)


def _embedded(
    texts: Sequence[str], embedder: Embedder, known: Mapping[str, npt.NDArray[np.float32]]
) -> Vectors:
    vectors = [known.get(sha256_text(text)) for text in texts]
    missing = [at for at, vector in enumerate(vectors) if vector is None]
    for at, vector in zip(missing, embedder.embed([texts[at] for at in missing]), strict=True):
        vectors[at] = vector
    return np.stack([vector for vector in vectors if vector is not None])


def _sound_shard(shards: Store, name: str, sha256: str | None) -> Vectors | None:
    if sha256 is None or not shards.exists(name):
        return None
    try:
        return read_npy(shards.read(name, sha256=sha256), shards.path(name))
    except Corrupt as error:
        logger.warning("%s: embedding that part again", error)
        return None


def npy_bytes(array: npt.NDArray[np.float32]) -> bytes:
    """Return an array as the bytes of an `.npy` file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def read_npy(data: bytes, where: str) -> Vectors:
    """Read the array in the bytes of an `.npy` file; anything else is `Corrupt`."""
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise Corrupt(f"{where} is not an array: {error}; run `dojo index` again") from error
    if array.dtype != np.float32:
        raise Corrupt(f"{where} holds {array.dtype}, float32 was wanted; run `dojo index` again")
    return np.asarray(array, np.float32)
